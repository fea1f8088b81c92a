//! *Primary Context Management* and *Context Management*.

use core::ptr;

use super::Driver;
use crate::bindings::{CUcontext, CUctx_flags, CUdevice};
use crate::error::CuError;

impl Driver {
    /// Takes a reference to the device's primary context, making it if it wasn't there: 0.1 s the
    /// first time. It does not become current. (*Primary Context Management*)
    ///
    /// # Errors
    /// The driver's answer.
    pub fn device_primary_ctx_retain(&self, device: CUdevice) -> Result<CUcontext, CuError> {
        let mut context = ptr::null_mut();
        // SAFETY: the call writes one value to a local.
        unsafe { self.table().cuDevicePrimaryCtxRetain(&mut context, device) }?;
        Ok(context)
    }

    /// Gives a reference back; the last one destroys the context. (*Primary Context Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The caller took a reference that was not given back, and nothing of the context is in use if it
    /// is the last.
    pub unsafe fn device_primary_ctx_release(&self, device: CUdevice) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuDevicePrimaryCtxRelease_v2(device) }
    }

    /// Destroys what is in the device's primary context, whoever holds references to it.
    /// (*Primary Context Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// Nothing in the process uses memory, streams or anything else of that context, now or later: no
    /// value is left that would use, or free, what ends with it, once the driver has put something
    /// else at the same address.
    pub unsafe fn device_primary_ctx_reset(&self, device: CUdevice) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuDevicePrimaryCtxReset_v2(device) }
    }

    /// Sets the flags of the device's primary context. (*Primary Context Management*)
    ///
    /// # Errors
    /// The driver's answer.
    pub fn device_primary_ctx_set_flags(
        &self,
        device: CUdevice,
        flags: CUctx_flags,
    ) -> Result<(), CuError> {
        // SAFETY: the call takes values only.
        unsafe { self.table().cuDevicePrimaryCtxSetFlags_v2(device, flags.0) }
    }

    /// The flags of the device's primary context, and whether it is active.
    /// (*Primary Context Management*)
    ///
    /// # Errors
    /// The driver's answer.
    pub fn device_primary_ctx_get_state(
        &self,
        device: CUdevice,
    ) -> Result<(CUctx_flags, bool), CuError> {
        let (mut flags, mut active) = (0, 0);
        // SAFETY: the call writes two values to locals.
        unsafe {
            self.table()
                .cuDevicePrimaryCtxGetState(device, &mut flags, &mut active)
        }?;
        Ok((CUctx_flags(flags), active != 0))
    }

    /// Makes a context, current on this thread. (*Context Management*)
    ///
    /// Uses `cuCtxCreate_v2` or, where a driver no longer had it, `cuCtxCreate_v4` without parameters,
    /// which means the same.
    ///
    /// # Errors
    /// The driver's answer.
    pub fn ctx_create(&self, flags: CUctx_flags, device: CUdevice) -> Result<CUcontext, CuError> {
        let mut context = ptr::null_mut();
        let table = self.table();
        // SAFETY: the call writes one value to a local.
        match unsafe { table.cuCtxCreate_v2(&mut context, flags.0, device) } {
            Err(error) if error.missing_symbol().is_some() => {
                // SAFETY: as above; parameters are optional.
                unsafe { table.cuCtxCreate_v4(&mut context, ptr::null_mut(), flags.0, device) }?;
            }
            other => other?,
        }
        Ok(context)
    }

    /// Destroys a context and most of what is in it. (*Context Management*)
    ///
    /// Memory of `cuMemCreate` and stream-ordered memory outlive it.
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The context came from [`ctx_create`](Self::ctx_create), was not destroyed before, and nothing of
    /// it is in use, now or later: no value is left that would use, or free, what ends with it, once
    /// the driver has put something else at the same address.
    pub unsafe fn ctx_destroy(&self, context: CUcontext) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuCtxDestroy_v2(context) }
    }

    /// Makes `context` current on this thread, above what was current. (*Context Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The context is one that the driver handed out.
    #[inline]
    pub unsafe fn ctx_push_current(&self, context: CUcontext) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuCtxPushCurrent_v2(context) }
    }

    /// Takes the current context off this thread's stack and returns it. (*Context Management*)
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_CONTEXT` if none is current.
    #[inline]
    pub fn ctx_pop_current(&self) -> Result<CUcontext, CuError> {
        let mut context = ptr::null_mut();
        // SAFETY: the call writes one value to a local.
        unsafe { self.table().cuCtxPopCurrent_v2(&mut context) }?;
        Ok(context)
    }

    /// Replaces the current context of this thread; null leaves it without one.
    /// (*Context Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The context is null, or one that the driver handed out.
    pub unsafe fn ctx_set_current(&self, context: CUcontext) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuCtxSetCurrent(context) }
    }

    /// The context that is current on this thread; null if none is. (*Context Management*)
    ///
    /// # Errors
    /// The driver's answer.
    #[inline]
    pub fn ctx_get_current(&self) -> Result<CUcontext, CuError> {
        let mut context = ptr::null_mut();
        // SAFETY: the call writes one value to a local.
        unsafe { self.table().cuCtxGetCurrent(&mut context) }?;
        Ok(context)
    }

    /// The device of the current context. (*Context Management*)
    ///
    /// # Errors
    /// The driver's answer.
    pub fn ctx_get_device(&self) -> Result<CUdevice, CuError> {
        let mut device = 0;
        // SAFETY: the call writes one value to a local.
        unsafe { self.table().cuCtxGetDevice(&mut device) }?;
        Ok(device)
    }

    /// Waits until all work of the current context is done. (*Context Management*)
    ///
    /// # Errors
    /// Also what earlier asynchronous work failed with.
    pub fn ctx_synchronize(&self) -> Result<(), CuError> {
        // SAFETY: the call takes nothing.
        unsafe { self.table().cuCtxSynchronize() }
    }

    /// The API version of a context, 3020 for any modern one. (*Context Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The context is null (the current one), or one that the driver handed out.
    pub unsafe fn ctx_get_api_version(&self, context: CUcontext) -> Result<u32, CuError> {
        let mut version = 0;
        // SAFETY: the caller's promise; the call writes one value to a local.
        unsafe { self.table().cuCtxGetApiVersion(context, &mut version) }?;
        Ok(version)
    }

    /// Lets the current context use the memory of `peer`. (*Peer Context Memory Access*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The context is one that the driver handed out.
    pub unsafe fn ctx_enable_peer_access(&self, peer: CUcontext) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuCtxEnablePeerAccess(peer, 0) }
    }

    /// Ends what [`ctx_enable_peer_access`](Self::ctx_enable_peer_access) began.
    /// (*Peer Context Memory Access*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The context is one that the driver handed out, and no work under way uses its memory from here.
    pub unsafe fn ctx_disable_peer_access(&self, peer: CUcontext) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuCtxDisablePeerAccess(peer) }
    }
}
