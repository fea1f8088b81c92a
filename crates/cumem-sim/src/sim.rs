//! The handle on a simulated driver.

use core::any::Any;
use core::ffi::{CStr, c_void};
use core::ptr;
use std::sync::Arc;

use cumem_sys::{CUcontext, Driver, LoadError};

use crate::books::Books;
use crate::config::{Config, SimBuilder};
use crate::fault::{Fault, FaultId};
use crate::instance::Instance;
use crate::slots::Lease;
use crate::table;

/// A simulated driver, and the way to look into it and to disturb it.
///
/// A cheap handle: cloning counts a reference. Every [`Driver`] that it gave out keeps it alive as
/// well. `Send` and `Sync`.
#[derive(Clone, Debug)]
pub struct Sim {
    lease: Arc<Lease>,
}

impl Sim {
    /// One device of 16 GiB, and everything else as on the real driver.
    ///
    /// # Panics
    /// As [`SimBuilder::build`].
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it takes one of few slots")]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Describes a simulated driver.
    pub fn builder() -> SimBuilder {
        SimBuilder::new()
    }

    /// A description from the variables `CUMEM_SIM_*`; [`crate::environment`] documents them.
    ///
    /// # Errors
    /// What is wrong with which variable.
    pub fn builder_from_environment() -> Result<SimBuilder, String> {
        let config = crate::config::from_environment(&|name| std::env::var(name).ok())?;
        Ok(SimBuilder::from_config(config))
    }

    pub(crate) fn with(config: Config) -> Self {
        match Lease::take(Instance::new(config)) {
            Ok(lease) => Self {
                lease: Arc::new(lease),
            },
            Err(_) => panic!(
                "all places for simulated drivers have been taken for two minutes; each is given \
                 back when its `Sim` and every `Driver` of it are dropped"
            ),
        }
    }

    fn instance(&self) -> &Instance {
        self.lease.instance()
    }

    /// A driver, initialised, whose calls this simulation answers.
    ///
    /// # Errors
    /// As for a real driver: a stub, a missing symbol, no device, or what `cuInit` answers.
    pub fn driver(&self) -> Result<Driver, LoadError> {
        let keep_alive: Arc<dyn Any + Send + Sync> = Arc::<Lease>::clone(&self.lease);
        let resolve = |name: &CStr| self.symbol(name);
        // SAFETY: the table compares every signature with the generated declaration; the functions
        // behave as the driver's do, and may be called while the lease lives.
        unsafe { Driver::from_symbols("cumem-sim", keep_alive, &resolve) }
    }

    /// The function with that exact exported name, legacy names included; null if the driver has
    /// none. It may be called while this simulation, or a driver of it, lives.
    #[must_use]
    pub fn symbol(&self, name: &CStr) -> *mut c_void {
        match table::named(name) {
            Some(call) if self.instance().config().has(call) => call.address(self.lease.slot()),
            _ => ptr::null_mut(),
        }
    }

    /// The books, as they are now. May be asked at any time, from any thread.
    #[must_use]
    pub fn books(&self) -> Books {
        self.instance().books()
    }

    /// Whether this process was forked from the one that initialised the simulated driver.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.instance().is_forked()
    }

    /// Forgets refused frees, lost memory and counts; what is live stays in the books.
    pub fn reset_books(&self) {
        self.instance().reset_books();
    }

    /// Adds a fault, which counts calls from now on.
    pub fn inject(&self, fault: Fault) -> FaultId {
        self.instance().faults().add(fault)
    }

    /// Takes a fault away; false if it was gone.
    pub fn remove_fault(&self, id: FaultId) -> bool {
        self.instance().faults().remove(id)
    }

    /// Takes all faults away.
    pub fn clear_faults(&self) {
        self.instance().faults().clear();
    }

    /// Stops all streams before their next piece of work, until the guard is dropped. Work can
    /// still be put into them, so that a test can look at memory before a copy has happened.
    ///
    /// Calls that wait for streams wait all the while; so does a free while work is under way.
    #[must_use = "the streams go on when the guard is dropped"]
    pub fn hold_streams(&self) -> HeldStreams {
        self.instance().hold_streams();
        HeldStreams { sim: self.clone() }
    }

    /// Destroys a context from outside, as a device reset by another part of the program would: what
    /// is in it is lost, and work that had not begun is never done. False if it isn't alive.
    pub fn destroy_context(&self, context: CUcontext) -> bool {
        self.instance().destroy_from_outside(context.addr())
    }

    /// Shuts the driver down, as happens at process exit: every later call answers
    /// `CUDA_ERROR_DEINITIALIZED`.
    pub fn deinitialise(&self) {
        self.instance().deinitialise();
    }
}

/// Streams that are stopped; dropping it lets them go on. Made by [`Sim::hold_streams`].
#[derive(Debug)]
pub struct HeldStreams {
    sim: Sim,
}

impl Drop for HeldStreams {
    fn drop(&mut self) {
        self.sim.instance().release_streams();
    }
}
