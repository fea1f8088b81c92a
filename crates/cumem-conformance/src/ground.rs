//! What a check stands on: a driver, a device, its context, and some help.

use core::ffi::{CStr, c_void};
use core::ops::Deref;
use std::sync::Mutex;
use std::sync::PoisonError;

use cumem_sys::{CUcontext, CUdevice, CUdeviceptr, CUmemAttach_flags, Driver};

use crate::behaviour::{Check, Stop, call, fail};
use crate::target::Target;

/// One check's surroundings. The primary context of device 0 is current on the checking thread.
pub(crate) struct Ground<'a> {
    target: &'a Target,
    device: CUdevice,
    context: CUcontext,
    notes: Mutex<Vec<String>>,
}

// SAFETY: a context's handle may be used from any thread.
unsafe impl Send for Ground<'_> {}
// SAFETY: as above.
unsafe impl Sync for Ground<'_> {}

impl Deref for Ground<'_> {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        self.target.driver()
    }
}

impl<'a> Ground<'a> {
    pub(crate) fn new(target: &'a Target) -> Check<Self> {
        let driver = target.driver();
        let device = driver.device_get(0)?;
        let context = driver.device_primary_ctx_retain(device)?;
        call!(driver.ctx_set_current(context))?;
        Ok(Self {
            target,
            device,
            context,
            notes: Mutex::new(Vec::new()),
        })
    }

    /// Gives up what it took.
    pub(crate) fn leave(self) -> Vec<String> {
        // A check that left the context in another state has said so, or is about it.
        while self.ctx_pop_current().is_ok() {}
        let _ = call!(self.device_primary_ctx_release(self.device));
        self.notes
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn device(&self) -> CUdevice {
        self.device
    }

    pub(crate) fn context(&self) -> CUcontext {
        self.context
    }

    /// What the driver exports under a name, as `dlsym` finds it.
    pub(crate) fn export(&self, name: &CStr) -> Check<*mut c_void> {
        let found = self.target.export(name);
        if found.is_null() {
            fail(format!("{name:?} is not exported"))
        } else {
            Ok(found)
        }
    }

    /// Tells something of the driver that isn't judged.
    pub(crate) fn note(&self, text: impl Into<String>) {
        self.notes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(text.into());
    }

    /// Managed memory that both sides may use.
    pub(crate) fn managed(&self, bytes: usize) -> Check<CUdeviceptr> {
        Ok(self.mem_alloc_managed(bytes, CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL)?)
    }

    /// Runs a part of the check on a new thread, on which no context is current.
    pub(crate) fn elsewhere<T: Send>(
        &self,
        part: impl FnOnce(&Self) -> Check<T> + Send,
    ) -> Check<T> {
        std::thread::scope(|scope| match scope.spawn(|| part(self)).join() {
            Ok(result) => result,
            Err(_) => Err(Stop::Failed("panicked".to_owned())),
        })
    }
}

/// An address as a pointer for the host.
pub(crate) fn host<T>(address: CUdeviceptr) -> *mut T {
    core::ptr::with_exposed_provenance_mut(address as usize)
}

/// A host pointer as a number.
pub(crate) fn number<T>(pointer: *const T) -> CUdeviceptr {
    pointer.expose_provenance() as CUdeviceptr
}
