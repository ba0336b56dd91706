//! Memory of large outputs.

use std::mem::{ManuallyDrop, MaybeUninit};

/// Below this many bytes huge pages can't help: hardly one of 2 MiB would fit.
#[cfg(target_os = "linux")]
const LARGE: usize = 4 << 20;

/// A buffer to be written in full, then [`finished`].
///
/// Half the time of a kernel with a large output goes into the page faults of its first touch. On Linux, where
/// huge pages are given to those who ask ("madvise"), a large buffer asks for them: 512 times fewer faults.
pub fn output<E>(len: usize) -> Vec<MaybeUninit<E>> {
    let mut buffer = Vec::with_capacity(len);
    // SAFETY: the elements are within the capacity and need no initialisation.
    unsafe { buffer.set_len(len) };
    #[cfg(target_os = "linux")]
    if size_of::<E>() * len >= LARGE {
        ask_for_huge_pages(&mut buffer);
    }
    buffer
}

/// The buffer as an ordinary vector, nothing copied.
///
/// # Safety
///
/// Every element has been written.
pub unsafe fn finished<E>(buffer: Vec<MaybeUninit<E>>) -> Vec<E> {
    let mut buffer = ManuallyDrop::new(buffer);
    // SAFETY: the same allocation; `MaybeUninit<E>` has the layout of `E`, and the elements are initialised.
    unsafe { Vec::from_raw_parts(buffer.as_mut_ptr().cast(), buffer.len(), buffer.capacity()) }
}

#[cfg(target_os = "linux")]
fn ask_for_huge_pages<E>(buffer: &mut [E]) {
    // Any page size divides this; the kernel uses whole huge pages only, wherever the range begins.
    const PAGE: usize = 64 << 10;
    let bytes = size_of_val(buffer);
    let start: *mut u8 = buffer.as_mut_ptr().cast();
    let skipped = start.align_offset(PAGE);
    let length = bytes.saturating_sub(skipped) / PAGE * PAGE;
    if length > 0 {
        // SAFETY: whole pages of our own allocation, whose contents the advice leaves alone. It may be refused
        // (no huge pages on this system), and then nothing is lost.
        unsafe { libc::madvise(start.add(skipped).cast(), length, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_buffer_holds_what_was_written() {
        for len in [0, 1, 1000, 3 << 20] {
            let mut buffer = output::<f32>(len);
            for (i, x) in buffer.iter_mut().enumerate() {
                x.write(i as f32);
            }
            // SAFETY: written just above.
            let vector = unsafe { finished(buffer) };
            assert_eq!(vector.len(), len);
            assert!(vector.iter().enumerate().all(|(i, &x)| x == i as f32));
        }
    }
}
