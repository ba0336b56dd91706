//! What of a table is asked for.

/// Whether an environment variable names this, among others between semicolons, or is not set.
pub fn asked(variable: &str, name: &str) -> bool {
    std::env::var(variable).map_or(true, |names| names.split(';').any(|asked| asked == name))
}
