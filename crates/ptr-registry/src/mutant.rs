//! Deliberate bugs, so that the models can show that they would notice one.
//!
//! A model that no bug can fail proves nothing. Every ordering and every step that the argument
//! in `docs/registry.md` leans on has a name here; under `cfg(loom)` the model runner can break
//! one by its name. In every other build these functions are constants.

use crate::sync::Ordering;

/// Whether the deliberate bug of this name is on.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) const fn on(_name: &str) -> bool {
    false
}

/// The ordering, or Relaxed if the deliberate bug of this name is on.
#[inline(always)]
pub(crate) fn weaken(name: &str, ordering: Ordering) -> Ordering {
    if on(name) {
        Ordering::Relaxed
    } else {
        ordering
    }
}

#[cfg(loom)]
pub(crate) use chosen::on;

/// Which deliberate bug is on: `PTR_REGISTRY_MUTANT`, read once.
#[cfg(loom)]
mod chosen {
    extern crate std;

    use std::string::String;
    use std::sync::OnceLock;

    static CHOSEN: OnceLock<Option<String>> = OnceLock::new();

    pub(crate) fn on(name: &str) -> bool {
        CHOSEN
            .get_or_init(|| std::env::var("PTR_REGISTRY_MUTANT").ok())
            .as_deref()
            == Some(name)
    }
}
