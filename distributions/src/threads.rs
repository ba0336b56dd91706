//! Loops that threads share, if there are several: to hand work over to a pool of one takes longer than a block of it.

use rayon::prelude::*;

fn is_serial() -> bool {
    rayon::current_num_threads() == 1
}

/// What is made of each.
pub fn map<T: Sync, R: Send>(items: &[T], of: impl Fn(&T) -> R + Sync) -> Vec<R> {
    match is_serial() {
        true => items.iter().map(of).collect(),
        false => items.par_iter().map(&of).collect(),
    }
}

/// Writes a buffer in pieces of one size, but for the last: each by its number.
pub fn write<E: Send, X: Send>(
    out: &mut [E],
    size: usize,
    piece: impl Fn(usize, &mut [E]) -> Result<(), X> + Sync,
) -> Result<(), X> {
    match is_serial() {
        true => out.chunks_mut(size).enumerate().try_for_each(|(at, out)| piece(at, out)),
        false => out.par_chunks_mut(size).enumerate().try_for_each(|(at, out)| piece(at, out)),
    }
}
