//! Which operators are solved with for which right-hand sides, and what comes out.

use crate::operator::{
    Blocks, Dense, Diagonal, FnOperator, LinearOperator, Operator, Parameters, Product, Scaled, Shifted, Sum, Tagged,
    Transposed,
};
use burn::backend::{Dispatch, ops::FloatTensorOps};
use burn::tensor::Tensor;
use sparsegrad::SparseTensor;
use sparsegrad::error::OpError;

/// A tensor in another shape of as many elements. Burn's own reshape takes a 0 for "as before", here it is nothing.
pub(crate) fn reshape<const A: usize, const B: usize>(tensor: Tensor<A>, shape: [usize; B]) -> Tensor<B> {
    Tensor::from_dispatch(<Dispatch as FloatTensorOps<Dispatch>>::float_reshape(tensor.into_dispatch(), shape.into()))
}

/// How right-hand sides are laid out as columns of the (block-diagonal) operator, and solutions as they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// They are columns.
    Columns,
    /// So many items of so many columns each stand side by side: one operator for all.
    SideBySide {
        /// The items.
        items: usize,
        /// Columns of each.
        columns: usize,
    },
    /// Items stand below each other, as the blocks of the operator do.
    Below {
        /// The items.
        items: usize,
    },
}

impl Layout {
    fn columns(self, tensor: Tensor<3>) -> Tensor<2> {
        let [items, rows, k] = tensor.dims();
        match self {
            Self::SideBySide { .. } => reshape(tensor.swap_dims(0, 1), [rows, items * k]),
            _ => reshape(tensor, [items * rows, k]),
        }
    }

    fn items(self, columns: Tensor<2>) -> Tensor<3> {
        let [rows, k] = columns.dims();
        match self {
            Self::SideBySide { items, columns: each } => reshape(columns, [rows, items, each]).swap_dims(0, 1),
            Self::Below { items } => reshape(columns, [items, rows / items, k]),
            Self::Columns => columns.unsqueeze(),
        }
    }
}

/// What an operator can be solved with, and what comes out.
///
/// | operator | right-hand side | solution |
/// |---|---|---|
/// | m x n | m | n |
/// | m x n | m x k | n x k |
/// | m x n, for all items | items x m x k | items x n x k |
/// | items x m x n | items x m x k | items x n x k |
/// | items x m x n | m x k, for all items | items x n x k |
///
/// The operators are those of this crate, sparse tensors among them, and any other one in an `Arc`.
pub trait SolveFor<B> {
    /// The solution's type.
    type Output;

    /// The operator itself.
    fn operator(&self) -> &dyn LinearOperator;

    /// The right-hand sides as columns.
    ///
    /// # Errors
    /// If they don't fit the operator.
    fn columns(&self, op: &'static str, b: B) -> Result<(Tensor<2>, Layout), OpError>;

    /// A guess of the solution as columns.
    ///
    /// # Errors
    /// If it has not the solution's shape.
    fn guess(&self, op: &'static str, guess: Self::Output, layout: Layout) -> Result<Tensor<2>, OpError>;

    /// The solution, from columns.
    fn output(&self, x: Tensor<2>, layout: Layout) -> Self::Output;
}

/// Checks that a right-hand side fits: its rows, dtype and device.
fn check<const D: usize>(
    op: &'static str,
    a: &dyn LinearOperator,
    left: Vec<usize>,
    b: &Tensor<D>,
    fits: bool,
) -> Result<(), OpError> {
    if !fits {
        let what = "the right-hand side must have as many rows (and items) as A";
        return Err(OpError::Shapes { op, what, left, right: b.dims().to_vec() });
    }
    if a.dtype() != b.dtype() {
        return Err(OpError::DTypes { op, left: a.dtype(), right: b.dtype() });
    }
    let (left, right) = (a.device().inner(), b.device().inner());
    if left != right {
        return Err(OpError::Devices { op, left: format!("{left:?}"), right: format!("{right:?}") });
    }
    Ok(())
}

fn check_guess(op: &'static str, guess: Vec<usize>, expected: Vec<usize>) -> Result<(), OpError> {
    if guess == expected {
        return Ok(());
    }
    Err(OpError::Shapes { op, what: "the guess must have the solution's shape", left: guess, right: expected })
}

/// The rows and columns of one item.
fn item(a: &dyn LinearOperator) -> [usize; 2] {
    a.shape().map(|size| size / a.items().max(1))
}

/// What an operator of so many items, its shape in words, makes of items of columns.
fn stacked(op: &'static str, a: &dyn LinearOperator, b: Tensor<3>) -> Result<(Tensor<2>, Layout), OpError> {
    let ([items, rows, columns], [m, n], of_a) = (b.dims(), item(a), a.items());
    let layout = match of_a {
        0 | 1 => Layout::SideBySide { items, columns },
        _ => Layout::Below { items },
    };
    let left = if of_a > 1 { vec![of_a, m, n] } else { vec![m, n] };
    check(op, a, left, &b, rows == m && (of_a <= 1 || items == of_a))?;
    Ok((layout.columns(b), layout))
}

impl<A: LinearOperator> SolveFor<Tensor<1>> for A {
    type Output = Tensor<1>;

    fn operator(&self) -> &dyn LinearOperator {
        self
    }

    fn columns(&self, op: &'static str, b: Tensor<1>) -> Result<(Tensor<2>, Layout), OpError> {
        let [rows] = b.dims();
        check(op, self, self.shape().to_vec(), &b, rows == self.shape()[0])?;
        Ok((reshape(b, [rows, 1]), Layout::Columns))
    }

    fn guess(&self, op: &'static str, guess: Tensor<1>, _: Layout) -> Result<Tensor<2>, OpError> {
        let [_, n] = self.shape();
        check_guess(op, guess.dims().to_vec(), vec![n])?;
        Ok(reshape(guess, [n, 1]))
    }

    fn output(&self, x: Tensor<2>, _: Layout) -> Tensor<1> {
        let [n, _] = x.dims();
        reshape(x, [n])
    }
}

impl<A: LinearOperator> SolveFor<Tensor<3>> for A {
    type Output = Tensor<3>;

    fn operator(&self) -> &dyn LinearOperator {
        self
    }

    fn columns(&self, op: &'static str, b: Tensor<3>) -> Result<(Tensor<2>, Layout), OpError> {
        stacked(op, self, b)
    }

    fn guess(&self, op: &'static str, guess: Tensor<3>, layout: Layout) -> Result<Tensor<2>, OpError> {
        let ([_, n], [items, _, k]) = (item(self), guess.dims());
        let fits = match layout {
            Layout::SideBySide { items, columns } => vec![items, n, columns],
            _ => vec![self.items().max(1), n, k],
        };
        let _ = items;
        check_guess(op, guess.dims().to_vec(), fits)?;
        Ok(layout.columns(guess))
    }

    fn output(&self, x: Tensor<2>, layout: Layout) -> Tensor<3> {
        layout.items(x)
    }
}

macro_rules! columns {
    ($([$($generic:tt)*] $a:ty),* $(,)?) => { $(
        impl<$($generic)*> SolveFor<Tensor<2>> for $a {
            type Output = Tensor<2>;

            fn operator(&self) -> &dyn LinearOperator {
                self
            }

            fn columns(&self, op: &'static str, b: Tensor<2>) -> Result<(Tensor<2>, Layout), OpError> {
                let shape = LinearOperator::shape(self);
                check(op, self, shape.to_vec(), &b, b.dims()[0] == shape[0])?;
                Ok((b, Layout::Columns))
            }

            fn guess(&self, op: &'static str, guess: Tensor<2>, _: Layout) -> Result<Tensor<2>, OpError> {
                let ([_, n], [_, k]) = (LinearOperator::shape(self), guess.dims());
                check_guess(op, guess.dims().to_vec(), vec![n, k])?;
                Ok(guess)
            }

            fn output(&self, x: Tensor<2>, _: Layout) -> Tensor<2> {
                x
            }
        }
    )* };
}
columns!(
    [] SparseTensor<2>,
    [] Dense,
    [] Diagonal,
    [P: Parameters] FnOperator<P>,
    [] Operator,
    [] Sum,
    [] Product,
    [] Scaled,
    [] Shifted,
    [] Transposed,
    [] Tagged,
    [] Blocks,
);

/// The same right-hand sides for every item.
impl SolveFor<Tensor<2>> for SparseTensor<3> {
    type Output = Tensor<3>;

    fn operator(&self) -> &dyn LinearOperator {
        self
    }

    fn columns(&self, op: &'static str, b: Tensor<2>) -> Result<(Tensor<2>, Layout), OpError> {
        let ([items, m, _], [rows, k]) = (self.shape(), b.dims());
        check(op, self, self.shape().to_vec(), &b, rows == m)?;
        let repeated = b.unsqueeze::<3>().expand([items, rows, k]);
        Ok((Layout::Below { items }.columns(repeated), Layout::Below { items }))
    }

    fn guess(&self, op: &'static str, guess: Tensor<3>, layout: Layout) -> Result<Tensor<2>, OpError> {
        SolveFor::<Tensor<3>>::guess(self, op, guess, layout)
    }

    fn output(&self, x: Tensor<2>, layout: Layout) -> Tensor<3> {
        layout.items(x)
    }
}
