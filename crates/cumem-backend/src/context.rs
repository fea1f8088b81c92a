//! Having the right context current, and leaving the caller's stack as it was.

use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use cumem_sys::{CUcontext, CUctx_st, CUdevice, CuError, Driver};

/// In which context a backend allocates.
///
/// Every driver allocation belongs to the context that was current when it was made, and most
/// kinds of memory end with that context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ContextPolicy {
    /// The device's primary context, which the CUDA runtime and every library built on it share.
    ///
    /// It is retained by the backend's first allocation, once, and given back when the backend
    /// is dropped (a `static` backend keeps it until the process ends). Allocation works on any
    /// thread, whatever context that thread had; a thread that already has the primary context
    /// pays one query of about 14 ns, another about 60 ns more.
    #[default]
    Primary,
    /// Whatever context is current on the allocating thread.
    ///
    /// For applications that make contexts of their own. The memory lands on that context's device,
    /// whatever the backend's ordinal. Allocation on a thread without one
    /// fails with `CUDA_ERROR_INVALID_CONTEXT`, and the memory ends with its context: destroy
    /// the context, then call [`Backend::forget_context`](crate::Backend::forget_context) before
    /// anything else is allocated on that driver. An owner of memory that ended with a context, and
    /// was neither dropped nor forgotten by then, may otherwise release what the driver has put at
    /// the same address since: that is part of what destroying a context asks of whoever does it
    /// ([`Driver::ctx_destroy`]). A kind
    /// whose release needs a context, as stream-ordered memory does, can't be used so.
    Current,
}

/// A device's primary context, retained at most once, without a lock.
#[derive(Debug)]
pub(crate) struct PrimaryContext {
    handle: AtomicPtr<CUctx_st>,
}

impl PrimaryContext {
    pub(crate) const fn new() -> Self {
        Self {
            handle: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// The context, retained by the first call.
    #[inline]
    pub(crate) fn get(&self, driver: &Driver, ordinal: i32) -> Result<CUcontext, CuError> {
        // Acquire pairs with the Release of the exchange below: whoever sees the handle also
        // sees what the driver did to make it.
        let handle = self.handle.load(Ordering::Acquire);
        if handle.is_null() {
            self.retain(driver, ordinal)
        } else {
            Ok(handle)
        }
    }

    #[cold]
    fn retain(&self, driver: &Driver, ordinal: i32) -> Result<CUcontext, CuError> {
        let device = driver.device_get(ordinal)?;
        let mine = driver.device_primary_ctx_retain(device)?;
        // Success: Release publishes the handle to `get`. Failure: Acquire, as in `get`.
        match self.handle.compare_exchange(
            ptr::null_mut(),
            mine,
            Ordering::Release,
            Ordering::Acquire,
        ) {
            Ok(_) => Ok(mine),
            Err(theirs) => {
                // Another thread was first; one reference is what the backend keeps.
                // SAFETY: this gives back the reference that this call took and nobody else
                // knows of; the winner's reference keeps the context alive.
                let _ = unsafe { driver.device_primary_ctx_release(device) };
                Ok(theirs)
            }
        }
    }

    /// Takes a reference again after the context was reset. The handle stays the same; should the
    /// driver ever choose another one, it is used from now on.
    #[cold]
    pub(crate) fn renew(&self, driver: &Driver, ordinal: i32) -> Result<(), CuError> {
        let device = driver.device_get(ordinal)?;
        let renewed = driver.device_primary_ctx_retain(device)?;
        // Release pairs with the Acquire in `get`.
        self.handle.store(renewed, Ordering::Release);
        Ok(())
    }

    /// Gives the reference back, if one was taken.
    ///
    /// # Safety
    /// Nothing that the owner allocated in the context is in use any more.
    pub(crate) unsafe fn release(&mut self, driver: &Driver, ordinal: i32) {
        if core::mem::replace(self.handle.get_mut(), ptr::null_mut()).is_null() {
            return;
        }
        if let Ok(device) = driver.device_get(ordinal) {
            // SAFETY: the reference was ours, and the caller promises that what it kept alive is
            // no longer in use.
            let _ = unsafe { driver.device_primary_ctx_release(device) };
        }
    }
}

/// A context that is current on this thread until the value is dropped; then what was current
/// before is so again. Not `Send`: the stack of contexts is the thread's.
#[derive(Debug)]
#[must_use = "the context is current only as long as this value lives"]
pub struct Entered<'a> {
    driver: &'a Driver,
    context: CUcontext,
    pushed: bool,
    /// The context stack is the thread's: this must be dropped where it was made.
    _thread: PhantomData<*mut ()>,
}

impl<'a> Entered<'a> {
    /// Makes `context` current, pushing it only if it isn't already.
    #[inline]
    pub(crate) fn new(driver: &'a Driver, context: CUcontext) -> Result<Self, CuError> {
        let pushed = driver.ctx_get_current()? != context;
        if pushed {
            // SAFETY: the callers pass a primary context that they hold a reference to, or the one
            // that the driver has just named as that of live memory. (A destroyed one would crash
            // a real driver.)
            unsafe { driver.ctx_push_current(context) }?;
        }
        Ok(Self {
            driver,
            context,
            pushed,
            _thread: PhantomData,
        })
    }

    /// Makes the context current that live memory of the driver was allocated in.
    ///
    /// For calls about a pointer that need some context, such as `cuMemAdvise`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for an address that the driver doesn't know.
    pub fn context_of(
        driver: &'a Driver,
        pointer: cumem_sys::CUdeviceptr,
    ) -> Result<Self, CuError> {
        Self::new(driver, driver.pointer_context(pointer)?)
    }

    /// The context that is current, when the caller made it so.
    #[inline]
    pub(crate) fn current(driver: &'a Driver) -> Result<Self, CuError> {
        Ok(Self {
            driver,
            context: driver.ctx_get_current()?,
            pushed: false,
            _thread: PhantomData,
        })
    }

    /// The context.
    #[must_use]
    #[inline]
    pub fn context(&self) -> CUcontext {
        self.context
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if self.pushed {
            // A failure here means that the driver is going away; there is no stack to restore.
            let _ = self.driver.ctx_pop_current();
        }
    }
}

/// A reference to a device's primary context, given back on drop: for resources that live in a
/// context and are no allocations of a backend.
#[derive(Debug)]
pub struct DeviceContext {
    driver: Driver,
    ordinal: i32,
    device: CUdevice,
    context: CUcontext,
}

// SAFETY: the context is a handle that the driver takes on any thread.
unsafe impl Send for DeviceContext {}
// SAFETY: as above.
unsafe impl Sync for DeviceContext {}

impl DeviceContext {
    /// Takes a reference to the primary context of the device with this ordinal.
    ///
    /// # Errors
    /// No such device, or the driver's answer.
    pub fn retain(driver: &Driver, ordinal: i32) -> Result<Self, CuError> {
        crate::exit::watch();
        let device = driver.device_get(ordinal)?;
        Ok(Self {
            driver: driver.clone(),
            ordinal,
            device,
            context: driver.device_primary_ctx_retain(device)?,
        })
    }

    /// The driver.
    #[must_use]
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// The device's ordinal.
    #[must_use]
    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }

    /// Makes the context current on this thread.
    ///
    /// # Errors
    /// The driver's answer.
    pub fn enter(&self) -> Result<Entered<'_>, CuError> {
        Entered::new(&self.driver, self.context)
    }
}

impl Drop for DeviceContext {
    fn drop(&mut self) {
        if !crate::exit::exiting() && !self.driver.is_forked() {
            // SAFETY: the reference is ours, and what it kept alive for its owner is gone before it.
            let _ = unsafe { self.driver.device_primary_ctx_release(self.device) };
        }
    }
}
