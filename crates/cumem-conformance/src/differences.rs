//! Where the simulated driver is known to differ from a real one, and what isn't known yet.

/// Behaviours that a real driver shows and the simulated one doesn't: name and reason.
pub const KNOWN_DIFFERENCES: &[(&str, &str)] = &[];

/// Behaviours that no committed run on a real GPU has shown yet: name and reason.
pub const NOT_SEEN: &[(&str, &str)] = &[("device.uuids_differ", "the machine had one device")];
