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

    /// What both have.
    pub fn common(self, other: Self) -> Self {
        Self {
            symmetric: self.symmetric && other.symmetric,
            positive_definite: self.positive_definite && other.positive_definite,
            lower_triangular: self.lower_triangular && other.lower_triangular,
            upper_triangular: self.upper_triangular && other.upper_triangular,
            unit_diagonal: self.unit_diagonal && other.unit_diagonal,
        }
    }

    /// Without a unit diagonal that nothing else keeps: that of a product of triangular operators is, no other.
    pub(super) fn consistent(self) -> Self {
        let unit_diagonal = self.unit_diagonal && (self.lower_triangular || self.upper_triangular);
        Self { unit_diagonal, ..self }
    }

    /// Those of the transposed operator.
    pub fn transposed(self) -> Self {
        Self { lower_triangular: self.upper_triangular, upper_triangular: self.lower_triangular, ..self }
    }
}
