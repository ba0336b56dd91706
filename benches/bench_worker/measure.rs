//! Time and memory of this process.

use std::time::{Duration, Instant};

/// Time that one execution took.
pub struct Elapsed {
    pub wall: Duration,
    /// CPU time of all threads.
    pub cpu: Duration,
}

/// The result of an execution, still alive, and the time that it took.
pub fn timed<T>(execute: impl FnOnce() -> T) -> (T, Elapsed) {
    let (wall, cpu) = (Instant::now(), cpu_time());
    let result = execute();
    let (cpu, wall) = (cpu_time() - cpu, wall.elapsed());
    (result, Elapsed { wall, cpu })
}

#[cfg(unix)]
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `time`, which outlives it.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(status, 0, "the clock of the process can't be read");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(not(unix))]
fn cpu_time() -> Duration {
    panic!("the CPU time of a process is read on Unix only")
}

/// By how many bytes the resident set grows at most during an execution, by Linux's resettable high-water mark.
pub fn peak_growth<T>(execute: impl FnOnce() -> T) -> std::io::Result<u64> {
    // SAFETY: no requirements. Freed memory goes back to the system, so that using it again counts.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    unsafe {
        libc::malloc_trim(0)
    };
    std::fs::write("/proc/self/clear_refs", "5")?;
    let before = status_bytes("VmRSS:")?;
    execute();
    Ok(status_bytes("VmHWM:")?.saturating_sub(before))
}

fn status_bytes(key: &str) -> std::io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| std::io::Error::other(format!("no {key} in /proc/self/status")))
}
