//! A number for each right-hand side, on the host: always in f64.

use super::super::space::Numbers;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// Of one right-hand side, without an allocation, or of several.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum HostNumbers {
    /// Of one.
    One(f64),
    /// Of several, or none.
    Many(Vec<f64>),
}

impl HostNumbers {
    pub(crate) fn new(numbers: Vec<f64>) -> Self {
        match numbers[..] {
            [one] => Self::One(one),
            _ => Self::Many(numbers),
        }
    }

    pub(crate) fn as_slice(&self) -> &[f64] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }

    #[inline(always)]
    fn map(self, f: impl Fn(f64) -> f64) -> Self {
        match self {
            Self::One(x) => Self::One(f(x)),
            Self::Many(mut many) => {
                many.iter_mut().for_each(|x| *x = f(*x));
                Self::Many(many)
            }
        }
    }

    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(f64, f64) -> f64) -> Self {
        match (self, other) {
            (Self::One(x), Self::One(y)) => Self::One(f(x, y)),
            (Self::Many(mut xs), Self::Many(ys)) => {
                xs.iter_mut().zip(ys).for_each(|(x, y)| *x = f(*x, y));
                Self::Many(xs)
            }
            _ => unreachable!("as many numbers as right-hand sides"),
        }
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:tt),*) => { $(
        impl $trait for HostNumbers {
            type Output = Self;
            #[inline]
            fn $method(self, other: Self) -> Self {
                self.zip(other, |x, y| x $op y)
            }
        }
    )* };
}
operators!(Add add +, Sub sub -, Mul mul *, Div div /);

impl Neg for HostNumbers {
    type Output = Self;
    fn neg(self) -> Self {
        self.map(|x| -x)
    }
}

impl Numbers for HostNumbers {
    fn like(&self, value: f64) -> Self {
        match self {
            Self::One(_) => Self::One(value),
            Self::Many(many) => Self::Many(vec![value; many.len()]),
        }
    }

    fn sqrt(self) -> Self {
        self.map(f64::sqrt)
    }

    fn abs(self) -> Self {
        self.map(f64::abs)
    }

    fn choose(condition: &Self, then: Self, otherwise: Self) -> Self {
        match (condition, then, otherwise) {
            (Self::One(c), then, otherwise) => {
                if *c > 0.0 {
                    then
                } else {
                    otherwise
                }
            }
            (Self::Many(cs), Self::Many(mut xs), Self::Many(ys)) => {
                for ((x, y), c) in xs.iter_mut().zip(ys).zip(cs) {
                    *x = if *c > 0.0 { *x } else { y };
                }
                Self::Many(xs)
            }
            _ => unreachable!("as many numbers as right-hand sides"),
        }
    }
}
