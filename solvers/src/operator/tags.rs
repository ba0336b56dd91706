//! What is known of an operator.

/// Properties of an operator that a solver may rely on. They are claims: [`LinearOperator`](super::LinearOperator)s carry
/// them, and nothing checks them unless asked to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tags {
    /// A = A^T.
    pub symmetric: bool,
    /// Symmetric, and x^T A x > 0 for every x but 0.
    pub positive_definite: bool,
    /// No entry above the diagonal.
    pub lower_triangular: bool,
    /// No entry below the diagonal.
    pub upper_triangular: bool,
    /// Every diagonal entry is 1.
    pub unit_diagonal: bool,
}

impl Tags {
    /// A = A^T.
    pub const SYMMETRIC: Self = Self { symmetric: true, ..Self::NONE };
    /// Symmetric and positive definite.
    pub const POSITIVE_DEFINITE: Self = Self { positive_definite: true, ..Self::SYMMETRIC };
    /// Nothing is known.
    pub const NONE: Self = Self {
        symmetric: false,
        positive_definite: false,
        lower_triangular: false,
        upper_triangular: false,
        unit_diagonal: false,
    };

    /// Those of the transposed operator.
    pub fn transposed(self) -> Self {
        Self { lower_triangular: self.upper_triangular, upper_triangular: self.lower_triangular, ..self }
    }
}
