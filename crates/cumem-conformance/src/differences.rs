//! Where the simulated driver is known to differ from a real one.

/// Behaviours that a real driver shows and the simulated one doesn't: name and reason.
pub const KNOWN_DIFFERENCES: &[(&str, &str)] = &[];
