//! A simulated driver, as a test holds it.

use std::sync::Arc;

use cumem_sys::{Driver, LoadError};

use crate::books::Books;
use crate::config::SimBuilder;
use crate::fault::Fault;
use crate::instance::Instance;
use crate::slot::Occupied;

/// A simulated CUDA driver in this process.
///
/// Drivers made by [`driver`](Self::driver) keep it alive; dropping the `Sim` only gives up the
/// view of its books. `Send` and `Sync`.
#[derive(Debug)]
pub struct Sim {
    instance: Arc<Instance>,
    occupied: Arc<Occupied>,
}

impl Sim {
    /// Chooses what the driver is to be.
    pub fn builder() -> SimBuilder {
        SimBuilder::default()
    }

    pub(crate) fn new(config: SimBuilder) -> Self {
        let instance = Arc::new(Instance::new(config));
        let occupied = Arc::new(Occupied::new(&instance));
        Self { instance, occupied }
    }

    /// The driver's entry points, initialised.
    ///
    /// # Errors
    /// As a real driver's loading, where the configuration asks for that: no devices, a required
    /// symbol left out, an old version.
    pub fn driver(&self) -> Result<Driver, LoadError> {
        let occupied = Arc::clone(&self.occupied);
        let missing = &self.instance.config.missing;
        // SAFETY: each name resolves to the simulated function of that name, whose signature is
        // compared with the header's at compile time, for as long as the slot is occupied.
        unsafe {
            Driver::from_symbols("cumem-sim", occupied, &|name| {
                let is_missing = name.to_str().is_ok_and(|name| missing.contains(name));
                if is_missing {
                    std::ptr::null_mut()
                } else {
                    self.occupied.resolve(name)
                }
            })
        }
    }

    /// The driver's own account of what happened so far.
    #[must_use]
    pub fn books(&self) -> Books {
        self.instance.books()
    }

    /// Makes calls fail from now on.
    pub fn inject(&self, fault: Fault) {
        self.instance.inject(fault);
    }

    /// Takes all faults away.
    pub fn clear_faults(&self) {
        self.instance.clear_faults();
    }
}
