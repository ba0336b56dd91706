//! What the methods are written in: vectors, a number for each right-hand side, and formulas over both.
//!
//! A method is written once. On the CPU backend its vectors are slices that formulas update in place, one pass each; on
//! other backends they are tensors, and formulas their fused elementwise operations, and nothing is read back but now and then.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// What a formula computes with: an element, or a tensor of them.
pub(crate) trait Field: Clone + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> {}
impl<T: Clone + Add<Output = T> + Sub<Output = T> + Mul<Output = T>> Field for T {}

/// A number for each right-hand side (each column of each item).
pub(crate) trait Numbers: Field + Div<Output = Self> + Neg<Output = Self> {
    /// So many equal ones.
    fn like(&self, value: f64) -> Self;
    /// Square roots.
    fn sqrt(self) -> Self;
    /// Absolute values.
    fn abs(self) -> Self;
    /// `then` where the condition is positive, `otherwise` where it isn't: where it is not a number, too.
    fn choose(condition: &Self, then: Self, otherwise: Self) -> Self;

    /// Squares.
    fn square(self) -> Self {
        self.clone() * self
    }

    /// Reciprocals, 0 of what is not positive.
    fn recip(self) -> Self {
        let reciprocal = self.like(1.0) / self.clone();
        Self::choose(&self, reciprocal, self.like(0.0))
    }

    /// Times a constant.
    fn times(self, factor: f64) -> Self {
        let factor = self.like(factor);
        self * factor
    }
}

/// An update of `W` vectors, element by element, from `C` numbers, `R` other vectors, and themselves; and `D` sums over the
/// elements, such as dot products.
pub(crate) trait Formula<const C: usize, const R: usize, const W: usize, const D: usize> {
    /// The new elements, and the terms of the sums.
    fn eval<T: Field>(c: [T; C], r: [T; R], w: [T; W]) -> ([T; W], [T; D]);
}

/// What is done with an element of a product while it is at hand: from `C` numbers, elements of the product and of `R` other
/// vectors, and the old element of the output, to the new element and the terms of `D` sums.
pub(crate) trait Epilogue<const C: usize, const R: usize, const D: usize> {
    /// The new element, and the terms of the sums.
    fn eval<T: Field>(c: [T; C], product: T, r: [T; R], out: T) -> (T, [T; D]);
}

/// `formula!(Name [numbers] [read] [written] => [new] [terms])`.
macro_rules! formula {
    (@one $x:ident) => { () };
    (@count $($x:ident)*) => { <[()]>::len(&[$(formula!(@one $x)),*]) };
    ($(#[$doc:meta])* $name:ident [$($c:ident)*] [$($r:ident)*] [$($w:ident)*] => [$($new:expr),*] [$($term:expr),*]) => {
        $(#[$doc])*
        pub(crate) struct $name;
        impl $crate::krylov::space::Formula<
            { formula!(@count $($c)*) },
            { formula!(@count $($r)*) },
            { formula!(@count $($w)*) },
            { <[&str]>::len(&[$(stringify!($term)),*]) },
        > for $name {
            #[inline(always)]
            #[allow(unused_variables, reason = "what is overwritten is not always read")]
            fn eval<T: $crate::krylov::space::Field>(
                [$($c),*]: [T; formula!(@count $($c)*)],
                [$($r),*]: [T; formula!(@count $($r)*)],
                [$($w),*]: [T; formula!(@count $($w)*)],
            ) -> ([T; formula!(@count $($w)*)], [T; <[&str]>::len(&[$(stringify!($term)),*])]) {
                #[allow(unused_mut, reason = "not every formula has sums")]
                let new = [$($new),*];
                let [$($w),*] = new.clone();
                (new, [$($term),*])
            }
        }
    };
}
pub(crate) use formula;

formula!(
    /// x . y
    Dot [] [x y] [] => [] [x * y]
);
formula!(
    /// y = x
    Copy [] [x] [y] => [x] []
);
formula!(
    /// y = a x
    Scale [a] [x] [y] => [a * x] []
);
formula!(
    /// y = x - y, and its squared norm
    Residual [] [x] [y] => [x - y] [y.clone() * y]
);
formula!(
    /// y += a x
    Axpy [a] [x] [y] => [y + a * x] []
);
formula!(
    /// y += a x, and its squared norm
    AxpyNorm [a] [x] [y] => [y + a * x] [y.clone() * y]
);
formula!(
    /// z += a x + b y
    Axpy2 [a b] [x y] [z] => [z + (a * x + b * y)] []
);
/// The product as it is.
pub(crate) struct Plain;
impl Epilogue<0, 0, 0> for Plain {
    #[inline(always)]
    fn eval<T: Field>(_: [T; 0], product: T, _: [T; 0], _: T) -> (T, [T; 0]) {
        (product, [])
    }
}

/// The product, and its dot product with a vector.
pub(crate) struct WithDot;
impl Epilogue<0, 1, 1> for WithDot {
    #[inline(always)]
    fn eval<T: Field>(_: [T; 0], product: T, [y]: [T; 1], _: T) -> (T, [T; 1]) {
        (product.clone(), [y * product])
    }
}

/// The product, its dot product with a vector, and its squared norm.
pub(crate) struct WithDots;
impl Epilogue<0, 1, 2> for WithDots {
    #[inline(always)]
    fn eval<T: Field>(_: [T; 0], product: T, [y]: [T; 1], _: T) -> (T, [T; 2]) {
        (product.clone(), [y * product.clone(), product.clone() * product])
    }
}

/// out = a product + b out, and its squared norm.
pub(crate) struct Axpby;
impl Epilogue<2, 0, 1> for Axpby {
    #[inline(always)]
    fn eval<T: Field>([a, b]: [T; 2], product: T, _: [T; 0], out: T) -> (T, [T; 1]) {
        let new = a * product + b * out;
        (new.clone(), [new.clone() * new])
    }
}

/// out = a product + b out, and its dot product with a vector.
pub(crate) struct AxpbyDot;
impl Epilogue<2, 1, 1> for AxpbyDot {
    #[inline(always)]
    fn eval<T: Field>([a, b]: [T; 2], product: T, [y]: [T; 1], out: T) -> (T, [T; 1]) {
        let new = a * product + b * out;
        (new.clone(), [new * y])
    }
}

/// The two sides of an operator: of length n, and of length m.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Solutions.
    Domain,
    /// Right-hand sides.
    Range,
}

/// What vectors are mapped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Map {
    /// A.
    Operator,
    /// A^T.
    Transposed,
    /// M^-1.
    Preconditioner,
    /// M^-T.
    PreconditionerTransposed,
}

/// Vectors and numbers of one problem, and what is done with them.
pub(crate) trait Space {
    /// A vector with a column for each right-hand side.
    type Vector;
    /// A number for each of them.
    type Numbers: Numbers;

    /// The number of right-hand sides: columns times items.
    fn groups(&self) -> usize;
    /// The unit roundoff of the vectors, times 2.
    fn epsilon(&self) -> f64;
    /// After how many iterations numbers are read: 1 where it costs nothing.
    fn look_every(&self) -> usize;
    /// A vector of zeros.
    fn zeros(&self, side: Side) -> Self::Vector;
    /// A number for all.
    fn number(&self, value: f64) -> Self::Numbers;
    /// A number for each.
    fn upload(&self, values: &[f64]) -> Self::Numbers;
    /// Numbers on the host: waits for them.
    fn read(&self, numbers: &[Self::Numbers]) -> Vec<Vec<f64>>;
    /// The largest absolute value of each: not a number if one of its elements isn't.
    fn max_abs(&self, x: &Self::Vector) -> Vec<f64>;
    /// The norm of the operator's entries (in the scale in which it is applied) for each right-hand side, if they are at hand.
    fn frobenius(&self) -> Option<Vec<f64>>;
    /// Takes from `from` what is to be restored: the columns whose number in `keep` is 0, not 1.
    fn restore(&self, keep: &[f64], from: &Self::Vector, x: &mut Self::Vector);
    /// Whether there is a preconditioner.
    fn is_preconditioned(&self) -> bool;

    /// Evaluates a formula: one pass over the vectors.
    fn update<F, const C: usize, const R: usize, const W: usize, const D: usize>(
        &self,
        formula: F,
        c: [&Self::Numbers; C],
        r: [&Self::Vector; R],
        w: [&mut Self::Vector; W],
    ) -> [Self::Numbers; D]
    where
        F: Formula<C, R, W, D>;

    /// Maps `x`, with an epilogue.
    fn apply<F, const C: usize, const R: usize, const D: usize>(
        &self,
        map: Map,
        epilogue: F,
        c: [&Self::Numbers; C],
        x: &Self::Vector,
        r: [&Self::Vector; R],
        out: &mut Self::Vector,
    ) -> [Self::Numbers; D]
    where
        F: Epilogue<C, R, D>;

    /// x . y of each.
    fn dot(&self, x: &Self::Vector, y: &Self::Vector) -> Self::Numbers {
        let [dot] = self.update(Dot, [], [x, y], []);
        dot
    }

    /// A copy.
    fn copy(&self, side: Side, x: &Self::Vector) -> Self::Vector {
        let mut y = self.zeros(side);
        self.update(Copy, [], [x], [&mut y]);
        y
    }
}
