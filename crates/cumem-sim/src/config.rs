//! What a simulated driver is to be.

use std::collections::BTreeSet;

use crate::sim::Sim;

/// Chooses what a [`Sim`] is: made by [`Sim::builder`].
#[derive(Clone, Debug)]
#[must_use]
pub struct SimBuilder {
    pub(crate) devices: i32,
    pub(crate) memory_per_device: usize,
    pub(crate) driver_version: i32,
    pub(crate) missing: BTreeSet<&'static str>,
    pub(crate) concurrent_managed_access: bool,
}

impl Default for SimBuilder {
    fn default() -> Self {
        Self {
            devices: 1,
            memory_per_device: 8 << 30,
            driver_version: 13000,
            missing: BTreeSet::new(),
            concurrent_managed_access: true,
        }
    }
}

impl SimBuilder {
    /// How many devices there are; 1 by default. With none, `cuInit` answers
    /// `CUDA_ERROR_NO_DEVICE`.
    pub fn devices(mut self, count: u16) -> Self {
        self.devices = i32::from(count);
        self
    }

    /// How many bytes each device has; 8 GiB by default. Beyond that, allocation answers
    /// `CUDA_ERROR_OUT_OF_MEMORY`. Pinned memory has the same limit of its own.
    pub fn memory_per_device(mut self, bytes: usize) -> Self {
        self.memory_per_device = bytes;
        self
    }

    /// The version of the driver API, as drivers count: 13000, which is 13.0, by default.
    ///
    /// It does not take entry points away; [`without_symbol`](Self::without_symbol) does.
    pub fn driver_version(mut self, version: i32) -> Self {
        self.driver_version = version;
        self
    }

    /// Leaves an entry point out, by its exact name, as an older driver would.
    pub fn without_symbol(mut self, name: &'static str) -> Self {
        self.missing.insert(name);
        self
    }

    /// Whether host and device may use managed memory at the same time; they may by default.
    /// Otherwise all advice and prefetching answers `CUDA_ERROR_INVALID_DEVICE`, as on Windows,
    /// WSL and Tegra.
    pub fn concurrent_managed_access(mut self, may: bool) -> Self {
        self.concurrent_managed_access = may;
        self
    }

    /// Makes it.
    ///
    /// # Panics
    /// If as many simulated drivers as one process can have are in use: 32.
    pub fn build(self) -> Sim {
        Sim::new(self)
    }
}
