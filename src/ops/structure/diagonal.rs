//! Diagonals, read and written.

use super::concat::joined;
use super::lists::{ABSENT, Lists, Order, slots_of};
use super::select::sizes;
use crate::backend::check::{Check, Operand, expect};
use crate::error::{OpError, TensorError};
use crate::ops::gather::gather;
use crate::pattern::{Conversion, Index, Pattern, Target, csr_of, with_rows};
use crate::tensor::{SparseTensor, reshape};
use burn::tensor::Tensor;

/// A diagonal of each of so many equal blocks, in the direction in which entries stand.
#[derive(Debug, Clone, Copy)]
struct Diagonal {
    items: usize,
    /// Of a block: how many lines there are, and how many places across.
    each: [usize; 2],
    /// How far it lies beside the main diagonal.
    offset: isize,
}

impl Diagonal {
    fn of<const D: usize>(tensor: &SparseTensor<D>, offset: isize) -> Self {
        let (items, each) = sizes(tensor);
        Self { items, each, offset }
    }

    fn t(self) -> Self {
        Self { each: [self.each[1], self.each[0]], offset: self.offset.saturating_neg(), ..self }
    }

    fn in_order(self, order: Order) -> Self {
        if order.by_columns { self.t() } else { self }
    }

    /// The first row and the first column of it.
    fn start(self) -> [usize; 2] {
        let beside = self.offset.unsigned_abs();
        if self.offset < 0 { [beside, 0] } else { [0, beside] }
    }

    /// How many places it has in each block.
    fn length(self) -> usize {
        let [row, column] = self.start();
        self.each[0].saturating_sub(row).min(self.each[1].saturating_sub(column))
    }

    /// The block, row and column of a place.
    fn place(self, at: usize) -> (usize, usize, usize) {
        let ([row, column], length) = (self.start(), self.length());
        (at / length, row + at % length, column + at % length)
    }

    /// The place in this row of the block-diagonal matrix, and its column there.
    fn in_line(self, line: usize) -> Option<(usize, usize)> {
        let (item, local) = (line / self.each[0], line % self.each[0]);
        let [row, column] = self.start();
        let at = local.checked_sub(row).filter(|&at| at < self.length())?;
        Some((item * self.length() + at, item * self.each[1] + column + at))
    }

    /// The gather of the values on it, summed.
    fn read(self, pattern: &Pattern) -> Pattern {
        let order = Order::of(pattern);
        let target = Target::DiagonalAt { items: self.items, offset: self.offset };
        let made = pattern.convert(target, || {
            let diagonal = self.in_order(order);
            let (mut offsets, mut slots) = (vec![0], vec![]);
            with_rows!(order.lines(pattern).rows(), rows => {
                for line in 0..rows.n_rows() {
                    let Some((_, column)) = diagonal.in_line(line) else {
                        continue;
                    };
                    let on = rows.range(line).filter(|&entry| rows.columns[entry].get() == column);
                    slots.extend(on.map(|entry| rows.slot(entry)));
                    offsets.push(slots.len());
                }
            });
            let shape = [self.items * self.length(), pattern.nnz()];
            Conversion { pattern: csr_of(&offsets, &slots, shape, true, false), gather: None }
        });
        made.pattern
    }

    /// For each value the slot of its new one: its own, that of the diagonal behind them, or none for duplicates on it. And the
    /// first place where nothing is stored.
    fn slots(self, pattern: &Pattern) -> (Vec<usize>, Option<usize>) {
        let nnz = pattern.nnz();
        let (mut slots, mut missing): (Vec<usize>, _) = ((0..nnz).collect(), None);
        with_rows!(self.read(pattern).rows(), places => {
            for place in 0..places.n_rows() {
                let stored = &places.columns[places.range(place)];
                stored.iter().for_each(|slot| slots[slot.get()] = ABSENT);
                match stored.first() {
                    Some(first) => slots[first.get()] = nnz + place,
                    None => missing = missing.or(Some(place)),
                }
            }
        });
        (slots, missing)
    }

    /// The gather from values and diagonal, one behind the other, that sets the latter where it is stored.
    fn write(self, pattern: &Pattern) -> Conversion {
        let target = Target::SetDiagonal { items: self.items, offset: self.offset };
        let made = pattern.convert(target, || {
            let stored = pattern.nnz() + self.items * self.length();
            Conversion { pattern: slots_of(self.slots(pattern).0, stored), gather: None }
        });
        Conversion { pattern: pattern.clone(), gather: Some(made.pattern) }
    }

    /// The same with what is missing inserted.
    fn insert(self, pattern: &Pattern) -> Conversion {
        let target = Target::InsertDiagonal { items: self.items, offset: self.offset };
        pattern.convert(target, || {
            let order = Order::of(pattern);
            let (new, diagonal) = (self.slots(pattern).0, self.in_order(order));
            let (nnz, sorted) = (pattern.nnz(), pattern.format().is_ordered());
            let mut lists = Lists::new();
            with_rows!(order.lines(pattern).rows(), rows => {
                for line in 0..rows.n_rows() {
                    let place = diagonal.in_line(line);
                    let mut missing = place.is_some();
                    for entry in rows.range(line) {
                        let column = rows.columns[entry].get();
                        lists.push(column, new[rows.slot(entry)]);
                        missing &= place.is_some_and(|(_, on)| column != on);
                    }
                    if let Some((at, column)) = place.filter(|_| missing) {
                        lists.push(column, nnz + at);
                    }
                    if sorted { lists.end_sorted_row() } else { lists.end_row() }
                }
            });
            lists.finish(order, pattern.shape(), nnz + self.items * self.length())
        })
    }
}

impl<const D: usize> SparseTensor<D> {
    fn diagonal_values(&self, offset: isize) -> (Diagonal, Tensor<1>) {
        let diagonal = Diagonal::of(self, offset);
        (diagonal, gather(&diagonal.read(self.pattern()), self.values().clone()))
    }

    fn check_diagonal<const E: usize>(
        &self,
        op: &'static str,
        values: &Tensor<E>,
        shape: [usize; E],
    ) -> Result<(), OpError> {
        let (check, left, right) = (Check { op }, Operand::sparse(&self.shape(), self.values()), Operand::from(values));
        check.shapes(values.dims() == shape, "a number for each place of the diagonal", &left, &right)?;
        check.compatible(&left, &right)
    }

    fn with_diagonal(&self, conversion: Conversion, values: Tensor<1>) -> Self {
        let map = conversion.gather.expect("values have other places");
        let both = joined(vec![self.values().clone(), values]);
        self.rebuilt(conversion.pattern, gather(&map, both))
    }

    fn diagonal_set(&self, diagonal: Diagonal, values: Tensor<1>) -> Result<Self, TensorError> {
        if diagonal.length() * diagonal.items == 0 {
            return Ok(self.clone());
        }
        if let (_, Some(place)) = diagonal.slots(self.pattern()) {
            let (item, row, column) = diagonal.place(place);
            return Err(TensorError::MissingDiagonal { row, column, item: (D > 2).then_some(item) });
        }
        Ok(self.with_diagonal(diagonal.write(self.pattern()), values))
    }

    fn diagonal_inserted(&self, diagonal: Diagonal, values: Tensor<1>) -> Self {
        if diagonal.length() * diagonal.items == 0 {
            return self.clone();
        }
        let complete = diagonal.slots(self.pattern()).1.is_none();
        let conversion = match complete {
            true => diagonal.write(self.pattern()),
            false => diagonal.insert(self.pattern()),
        };
        self.with_diagonal(conversion, values)
    }
}

macro_rules! diagonals {
    ($d:literal, $v:literal, $shape:literal, $dims:expr) => {
        impl SparseTensor<$d> {
            #[doc = concat!("Diagonal `offset` as a vector, ", $shape)]
            ///
            /// Element t is at (t, t + offset), or at (t - offset, t) if the offset is negative. Absent entries are 0, duplicates
            /// are summed. A diagonal outside of the matrix is empty. The plan is kept with the pattern.
            ///
            /// [`SparseTensor::diagonal`] is the other way round: the matrix of a vector.
            ///
            /// # Gradient
            /// Of each entry on the diagonal, each duplicate in full: that of its element; 0 for the others.
            ///
            /// ```
            /// use sparsegrad::prelude::*;
            ///
            /// let a = SparseTensor::from_triplets(&[0, 0, 1], &[0, 1, 0], &[1.0f32, 2.0, 3.0], [2, 2], &Device::flex())?;
            /// assert_eq!(a.get_diagonal(0).to_data().try_to_vec::<f32>().unwrap(), [1.0, 0.0]);
            /// assert_eq!(a.get_diagonal(-1).to_data().try_to_vec::<f32>().unwrap(), [3.0]);
            /// # Ok::<(), TensorError>(())
            /// ```
            pub fn get_diagonal(&self, offset: isize) -> Tensor<$v> {
                let (diagonal, values) = self.diagonal_values(offset);
                reshape(values, $dims(diagonal))
            }

            #[doc = concat!("The matrix with this diagonal, ", $shape)]
            ///
            /// At the same pattern: every place of the diagonal must be stored. Of duplicates there the first takes the value, the
            /// others are 0. The plan is kept with the pattern.
            ///
            /// # Gradient
            /// Of `values`: that of their places. Of the entries on the diagonal: 0, they have no part in the result; of the others:
            /// their own.
            ///
            /// # Errors
            /// If a place of the diagonal is not stored, with its row ([`insert_diagonal`](Self::insert_diagonal) inserts it), or
            /// length, dtype or device do not fit.
            ///
            /// ```
            /// use sparsegrad::prelude::*;
            ///
            /// let device = Device::flex();
            /// let a = SparseTensor::eye(2, &device)?;
            /// let b = a.set_diagonal(0, Tensor::from_data([3.0, 4.0], &device))?;
            /// assert_eq!(b.triplets()?.collect::<Vec<_>>(), [(0, 0, 3.0), (1, 1, 4.0)]);
            ///
            /// let error = a.set_diagonal(1, Tensor::from_data([3.0], &device)).unwrap_err();
            /// assert_eq!(error.to_string(), "nothing is stored at (0, 1), on the diagonal that is to be set (insert_diagonal inserts it)");
            /// # Ok::<(), TensorError>(())
            /// ```
            pub fn set_diagonal(&self, offset: isize, values: Tensor<$v>) -> Result<Self, TensorError> {
                let diagonal = Diagonal::of(self, offset);
                self.check_diagonal("set_diagonal", &values, $dims(diagonal))?;
                let length = diagonal.items * diagonal.length();
                self.diagonal_set(diagonal, reshape(values, [length]))
            }

            #[doc = concat!("The matrix with this diagonal, ", $shape)]
            ///
            /// As [`set_diagonal`](Self::set_diagonal), but places that are not stored are inserted: where entries are sorted
            /// in their order, at the end of the row otherwise. If none is missing the pattern stays.
            ///
            /// # Panics
            /// Where [`try_insert_diagonal`](Self::try_insert_diagonal) returns an error.
            ///
            /// ```
            /// use sparsegrad::prelude::*;
            ///
            /// let device = Device::flex();
            /// let a = SparseTensor::eye(2, &device)?;
            /// let b = a.insert_diagonal(1, Tensor::from_data([5.0], &device));
            /// assert_eq!(b.triplets()?.collect::<Vec<_>>(), [(0, 0, 1.0), (0, 1, 5.0), (1, 1, 1.0)]);
            /// # Ok::<(), TensorError>(())
            /// ```
            #[track_caller]
            pub fn insert_diagonal(&self, offset: isize, values: Tensor<$v>) -> Self {
                expect(self.try_insert_diagonal(offset, values))
            }

            /// [`insert_diagonal`](Self::insert_diagonal), with operands that do not fit as an error.
            ///
            /// # Errors
            /// If length, dtype or device do not fit.
            pub fn try_insert_diagonal(&self, offset: isize, values: Tensor<$v>) -> Result<Self, OpError> {
                let diagonal = Diagonal::of(self, offset);
                self.check_diagonal("insert_diagonal", &values, $dims(diagonal))?;
                let length = diagonal.items * diagonal.length();
                Ok(self.diagonal_inserted(diagonal, reshape(values, [length])))
            }
        }
    };
}
diagonals!(2, 1, "of as many elements as it crosses rows.", |d: Diagonal| [d.length()]);
diagonals!(3, 2, "items x elements.", |d: Diagonal| [d.items, d.length()]);
