//! What can go wrong with data. One enum a family; every message names the place, the value and the bound.

use crate::format::TensorFormat;
use burn::tensor::DType;

/// A format that contradicts itself, or text that is not a format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The text does not follow the grammar.
    #[error("expected {expected} at character {position} of the format and found {found}")]
    Syntax {
        /// Zero-based character position.
        position: usize,
        /// What the grammar wants there.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// A dimension is declared twice.
    #[error("dimension {name} is declared twice")]
    RepeatedDimension {
        /// Its name.
        name: String,
    },
    /// A level speaks of a dimension that is not declared.
    #[error("dimension {name} of level {level} is not declared")]
    UnknownDimension {
        /// Its name, or its number where it has none.
        name: String,
        /// The level, counted from 0.
        level: usize,
    },
    /// A dimension of the tensor that no level stores.
    #[error("dimension {name} is not stored by any level")]
    UnusedDimension {
        /// Its name.
        name: String,
    },
    /// A level stores again what an earlier level has stored.
    #[error("level {level} stores dimension {name} again")]
    ReusedDimension {
        /// The dimension's name.
        name: String,
        /// The level, counted from 0.
        level: usize,
    },
    /// `i % n` without `i // n` before it, or a division that no modulo completes.
    #[error("{expression} of level {level} has no matching division or modulo with the same divisor")]
    UnmatchedDivision {
        /// The expression.
        expression: String,
        /// The level, counted from 0.
        level: usize,
    },
    /// A divisor of 0.
    #[error("the divisor of {expression} in level {level} must be positive")]
    DivisorNotPositive {
        /// The expression.
        expression: String,
        /// The level, counted from 0.
        level: usize,
    },
    /// A sum or difference of dimensions without a range level that completes it, or a range without it.
    #[error("level {level} ({expression}) needs both a sum or difference and, later, a range level")]
    UnmatchedRange {
        /// The expression.
        expression: String,
        /// The level, counted from 0.
        level: usize,
    },
    /// A level kind where it cannot stand, or with a property or parameter that it cannot have.
    #[error("level {level} ({kind}): {reason}")]
    InvalidLevel {
        /// The level, counted from 0.
        level: usize,
        /// Its kind.
        kind: String,
        /// What is wrong.
        reason: &'static str,
    },
}

/// Which index buffer of a pattern an error speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Axis {
    /// Row indices or row offsets.
    Row,
    /// Column indices or column offsets.
    Column,
}

impl std::fmt::Display for Axis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Axis::Row => "row",
            Axis::Column => "column",
        })
    }
}

/// Index buffers that are not a valid pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// An index outside of the matrix.
    #[error("{axis} index {value} at position {position} is out of range for a matrix with {bound} {axis}s (shape {}x{}{})",
        shape[0], shape[1], group.map_or(String::new(), |(g, a, b)| format!(", {} {g} has entries {a}..{b}", if *axis == Axis::Row { Axis::Column } else { Axis::Row })))]
    IndexOutOfRange {
        /// The axis of the index.
        axis: Axis,
        /// Where it stands in its buffer.
        position: usize,
        /// The index.
        value: i128,
        /// The first index that is too large.
        bound: usize,
        /// The shape of the matrix.
        shape: [usize; 2],
        /// For compressed formats: the row (column) that the entry belongs to, and its range of entries.
        group: Option<(usize, usize, usize)>,
    },
    /// An offsets buffer of the wrong length.
    #[error("{axis} offsets have length {found}, a matrix with {count} {axis}s needs {}", count + 1)]
    OffsetsLength {
        /// The compressed axis.
        axis: Axis,
        /// The length found.
        found: usize,
        /// How many rows (columns) the matrix has.
        count: usize,
    },
    /// Offsets that do not start at 0.
    #[error("{axis} offsets must start at 0 and start at {value}")]
    FirstOffset {
        /// The compressed axis.
        axis: Axis,
        /// The value found.
        value: i128,
    },
    /// Offsets that decrease.
    #[error("{axis} offsets decrease at position {position}: {value} after {previous}")]
    OffsetsDecrease {
        /// The compressed axis.
        axis: Axis,
        /// Where in the buffer.
        position: usize,
        /// The offset before.
        previous: i128,
        /// The offset that is too small.
        value: i128,
    },
    /// Offsets that do not end at the number of entries.
    #[error("{axis} offsets end at {value}, but there are {entries} entries")]
    LastOffset {
        /// The compressed axis.
        axis: Axis,
        /// The last offset.
        value: i128,
        /// How many indices are given.
        entries: usize,
    },
    /// Buffers that must be equally long and are not.
    #[error("{first} has length {first_length} and {second} has length {second_length}: they must be equal")]
    Lengths {
        /// Name of one buffer.
        first: &'static str,
        /// Its length.
        first_length: usize,
        /// Name of the other.
        second: &'static str,
        /// Its length.
        second_length: usize,
    },
    /// The format promises order, and an entry stands before its predecessor.
    #[error("entry {position} ({row}, {column}) is out of order, and {format} is ordered")]
    Unordered {
        /// The position of the entry that should stand earlier.
        position: usize,
        /// Its row.
        row: usize,
        /// Its column.
        column: usize,
        /// The format.
        format: TensorFormat,
    },
    /// The format promises unique entries, and one is stored twice.
    #[error("entry {position} stores ({row}, {column}) again, and {format} is unique")]
    Duplicate {
        /// The position of the second entry.
        position: usize,
        /// Its row.
        row: usize,
        /// Its column.
        column: usize,
        /// The format.
        format: TensorFormat,
    },
    /// A level lacks a buffer, or has one that its kind does not store.
    #[error("level {level} of {format}: {reason}")]
    Level {
        /// The level, counted from 0.
        level: usize,
        /// The format.
        format: TensorFormat,
        /// What is wrong.
        reason: &'static str,
    },
    /// The shape has another number of dimensions than the format.
    #[error("{format} has {} dimensions and the shape {shape:?} has {}", format.rank(), shape.len())]
    Rank {
        /// The format.
        format: TensorFormat,
        /// The shape.
        shape: Vec<usize>,
    },
    /// A format that cannot be stored yet.
    #[error("patterns in {format} are not supported")]
    Unsupported {
        /// The format.
        format: TensorFormat,
    },
    /// Patterns in different formats where one is needed.
    #[error("patterns in {first} and in {other}: convert them to one format")]
    Formats {
        /// The format of the first.
        first: TensorFormat,
        /// The first other format.
        other: TensorFormat,
    },
    /// Blocks that do not fill the diagonal of a matrix.
    #[error("blocks of {}x{} in all for a matrix of shape {}x{}", blocks[0], blocks[1], shape[0], shape[1])]
    BlockShapes {
        /// The shape of the matrix.
        shape: [usize; 2],
        /// The sum of the blocks' shapes.
        blocks: [usize; 2],
    },
    /// An entry outside of the blocks on the diagonal.
    #[error("entry {position} ({row}, {column}) lies outside of block {block}, that of its row")]
    OutsideBlock {
        /// Its position.
        position: usize,
        /// Its row.
        row: usize,
        /// Its column.
        column: usize,
        /// The block of its row.
        block: usize,
    },
    /// An entry of a block that is stored after one of a later block.
    #[error("entry {position} ({row}, {column}) of block {block} stands after one of a later block")]
    BlocksMixed {
        /// Its position.
        position: usize,
        /// Its row.
        row: usize,
        /// Its column.
        column: usize,
        /// Its block.
        block: usize,
    },
    /// The index type that was asked for is too small.
    #[error("{what} = {value} does not fit 32-bit indices (largest {})", i32::MAX)]
    IndexWidth {
        /// The quantity that does not fit.
        what: &'static str,
        /// Its value.
        value: usize,
    },
    /// A product of sizes that no index can hold.
    #[error("a matrix of {rows} rows and {columns} columns is too large to index")]
    TooLarge {
        /// Rows.
        rows: usize,
        /// Columns.
        columns: usize,
    },
}

/// A sparse tensor that cannot be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// The pattern is not valid.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// Another number of values than the pattern stores.
    #[error("{values} values for a pattern that stores {stored}")]
    ValuesLength {
        /// How many values are given.
        values: usize,
        /// How many the pattern stores.
        stored: usize,
    },
    /// A dtype that the device lacks, or that is not a real floating-point type.
    #[error("values of type {dtype:?} are not supported on {device}")]
    DType {
        /// The dtype.
        dtype: DType,
        /// The device.
        device: String,
    },
    /// A position outside of the matrix.
    #[error("position ({row}, {column}) is out of range for a matrix of shape {}x{}", shape[0], shape[1])]
    Position {
        /// The row.
        row: usize,
        /// The column.
        column: usize,
        /// The shape of the matrix.
        shape: [usize; 2],
    },
    /// Nothing to stack: a batch has the shape and the device of its items.
    #[error("a batch needs at least one item")]
    NoItems,
    /// Items of different shapes.
    #[error("item {item} has shape {}x{} and item 0 has {}x{}", shape[0], shape[1], first[0], first[1])]
    ItemShape {
        /// The item.
        item: usize,
        /// Its shape.
        shape: [usize; 2],
        /// The shape of item 0.
        first: [usize; 2],
    },
    /// A number of items that does not divide the matrix into equal blocks.
    #[error("a matrix of shape {}x{} is not {items} equal blocks", shape[0], shape[1])]
    Items {
        /// The number of items.
        items: usize,
        /// The shape of the matrix.
        shape: [usize; 2],
    },
    /// A batch index out of range.
    #[error("batch index {value} at position {position} is out of range for a batch of {items}")]
    BatchIndex {
        /// Where it stands.
        position: usize,
        /// The index.
        value: i128,
        /// How many items there are.
        items: usize,
    },
    /// A range of rows or columns that the matrix does not have.
    #[error("{axis}s {start}..{end} are not a range of a matrix with {size} {axis}s")]
    Range {
        /// Rows or columns.
        axis: Axis,
        /// The first of the range.
        start: usize,
        /// Where it ends.
        end: usize,
        /// How many the matrix has.
        size: usize,
    },
    /// A place on a diagonal that is not stored.
    #[error(
        "nothing is stored at ({row}, {column}){}, on the diagonal that is to be set (insert_diagonal inserts it)",
        of_item(item)
    )]
    MissingDiagonal {
        /// The row of the first such place.
        row: usize,
        /// Its column.
        column: usize,
        /// In a batch, its item.
        item: Option<usize>,
    },
    /// A row, or column, of blocks without a block.
    #[error("{axis} {at} of the blocks has none, which would say how large it is")]
    NoBlock {
        /// Rows or columns.
        axis: Axis,
        /// Which of them.
        at: usize,
    },
    /// Operands that do not fit each other.
    #[error(transparent)]
    Operands(#[from] OpError),
    /// Reading back from the device failed.
    #[error("reading from the device failed: {reason}")]
    Read {
        /// What the backend says.
        reason: String,
    },
}

/// Lengths, offsets or ids that are not segments.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentsError {
    /// A segment of fewer rows than none.
    #[error("the length {value} at position {position} is negative")]
    NegativeLength {
        /// The segment.
        position: usize,
        /// Its length.
        value: i128,
    },
    /// Offsets without even the 0 that they start with.
    #[error("no offsets: n segments have n + 1, and no segments have one, 0")]
    NoOffsets,
    /// Offsets that do not start at 0.
    #[error("segment offsets must start at 0 and start at {value}")]
    FirstOffset {
        /// The value found.
        value: i128,
    },
    /// Offsets that decrease.
    #[error("segment offsets decrease at position {position}: {value} after {previous}")]
    OffsetsDecrease {
        /// Where in the buffer.
        position: usize,
        /// The offset before.
        previous: i128,
        /// The offset that is too small.
        value: i128,
    },
    /// A row that belongs to no segment.
    #[error("segment id {value} at position {position} is out of range for {segments} segments")]
    IdOutOfRange {
        /// The row.
        position: usize,
        /// Its id.
        value: i128,
        /// How many segments there are.
        segments: usize,
    },
    /// More rows than an index can count.
    #[error("{rows} rows are too many to index (largest number {})", i64::MAX - 1)]
    TooManyRows {
        /// How many, at least.
        rows: u128,
    },
    /// More segments than an index can count.
    #[error("{segments} segments are too many to index (largest number {})", i64::MAX - 1)]
    TooManySegments {
        /// How many.
        segments: usize,
    },
}

/// Operands that do not fit each other. The functions without `try_` panic with its message.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// Shapes that do not fit.
    #[error("{op}: {what}: {left:?} and {right:?}")]
    Shapes {
        /// The operation.
        op: &'static str,
        /// What must agree.
        what: &'static str,
        /// Shape of the first operand.
        left: Vec<usize>,
        /// Shape of the second operand.
        right: Vec<usize>,
    },
    /// Different dtypes: nothing is promoted silently.
    #[error("{op}: dtypes differ: {left:?} and {right:?} (use `cast`)")]
    DTypes {
        /// The operation.
        op: &'static str,
        /// Dtype of the first operand.
        left: DType,
        /// Dtype of the second operand.
        right: DType,
    },
    /// Different devices.
    #[error("{op}: devices differ: {left} and {right} (use `to_device`)")]
    Devices {
        /// The operation.
        op: &'static str,
        /// Device of the first operand.
        left: String,
        /// Device of the second operand.
        right: String,
    },
    /// A dtype that the operation or the device lacks.
    #[error("{op}: {dtype:?} is not supported on {device}")]
    UnsupportedDType {
        /// The operation.
        op: &'static str,
        /// The dtype.
        dtype: DType,
        /// The device.
        device: String,
    },
    /// Another pattern than the plan was made for.
    #[error("{op}: {operand} is {given}, and the plan is for another pattern, {planned}")]
    OtherPattern {
        /// The operation.
        op: &'static str,
        /// The operand.
        operand: &'static str,
        /// The plan's pattern, in words.
        planned: String,
        /// The operand's.
        given: String,
    },
    /// A result that the host has no memory for.
    #[error("{op}: there is no memory for {what} = {size}")]
    Memory {
        /// The operation.
        op: &'static str,
        /// What there are too many of.
        what: &'static str,
        /// How many, at least.
        size: u128,
    },
    /// Sizes beyond what the device's indices or memory can hold.
    #[error("{op}: {what} = {size} is beyond the limit of {limit} of {device}")]
    TooLarge {
        /// The operation.
        op: &'static str,
        /// The quantity.
        what: &'static str,
        /// Its value.
        size: u128,
        /// The limit.
        limit: u128,
        /// The device.
        device: String,
    },
}

/// A matrix that a type of another library can't hold, or that can't be read back for it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InteropError {
    /// The matrix type holds each position once, and one is stored twice.
    #[error(
        "entry {position} stores ({row}, {column}) again, and a {matrix} holds each position once (use `coalesce`)"
    )]
    Duplicate {
        /// The position of the second entry among the values.
        position: usize,
        /// Its row.
        row: usize,
        /// Its column.
        column: usize,
        /// The type of the other library.
        matrix: &'static str,
    },
    /// Values of another type: nothing is converted silently.
    #[error("values of type {values:?} for a matrix of {matrix:?} (use `cast`)")]
    DType {
        /// The type of the tensor's values.
        values: DType,
        /// That of the matrix.
        matrix: DType,
    },
    /// An index, an offset or the shape is beyond the index type.
    #[error("{value} does not fit the index type {index}")]
    Index {
        /// The number that does not fit.
        value: i64,
        /// The index type.
        index: &'static str,
    },
    /// A pattern that can't be borrowed as it is.
    #[error("a view needs {format} with indices of {bits} bits, sorted, each position once, and this is {found}")]
    View {
        /// The format that the view needs.
        format: &'static str,
        /// The bits of its indices.
        bits: usize,
        /// The pattern, in words.
        found: String,
    },
    /// The other library does not take what this one holds valid.
    #[error("refused: {reason}")]
    Refused {
        /// What it says.
        reason: String,
    },
    /// Pattern and values do not fit each other, or reading back from the device failed.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// An order that is not a permutation, or that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PermutationError {
    /// An index beyond the number of things.
    #[error("index {value} at position {position} is out of range for a permutation of {length}")]
    OutOfRange {
        /// Where it stands.
        position: usize,
        /// The index.
        value: i128,
        /// How many things there are.
        length: usize,
    },
    /// An index that stands twice.
    #[error("position {position} of the permutation is {value}, as position {first} is already")]
    Repeated {
        /// The second place.
        position: usize,
        /// The index.
        value: usize,
        /// The first place.
        first: usize,
    },
    /// An ordering of a matrix that is not square.
    #[error("an ordering of rows and columns needs a square matrix, and this is {rows}x{columns}")]
    NotSquare {
        /// Its rows.
        rows: usize,
        /// Its columns.
        columns: usize,
    },
}

/// A triangular system that can't be solved.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TriangularError {
    /// A row that stores nothing on the diagonal.
    #[error(
        "no diagonal entry in row {row}{}: a triangular solve needs one in every row (or unit_diagonal)",
        of_item(item)
    )]
    MissingDiagonal {
        /// The row, the first of its kind.
        row: usize,
        /// In a batch, its item.
        item: Option<usize>,
    },
    /// A zero on the diagonal: the matrix is singular.
    #[error("the diagonal entry in row {row}{} is {value}: a triangular solve divides by it", of_item(item))]
    ZeroDiagonal {
        /// The row, the first of its kind.
        row: usize,
        /// In a batch, its item.
        item: Option<usize>,
        /// The value, duplicates summed.
        value: f64,
    },
    /// A stored entry that the solve would ignore, where that was to be refused.
    #[error(
        "entry {position} ({row}, {column}){} would be ignored: it is in the other triangle, or on a diagonal that is taken as ones",
        of_item(item)
    )]
    Ignored {
        /// Its place among the values.
        position: usize,
        /// Its row.
        row: usize,
        /// Its column.
        column: usize,
        /// In a batch, its item.
        item: Option<usize>,
    },
    /// A matrix that is not square.
    #[error("a triangular solve needs a square matrix, and this is {rows}x{columns}")]
    NotSquare {
        /// Its rows.
        rows: usize,
        /// Its columns.
        columns: usize,
    },
    /// Operands that do not fit each other.
    #[error(transparent)]
    Operands(#[from] OpError),
    /// Reading the diagonal back from the device failed.
    #[error("reading from the device failed: {reason}")]
    Read {
        /// What the backend says.
        reason: String,
    },
}

fn of_item(item: &Option<usize>) -> String {
    item.map_or(String::new(), |item| format!(" of item {item}"))
}
