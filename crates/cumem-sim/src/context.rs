//! Contexts: made, destroyed, and current on threads.

use core::ffi::{c_int, c_uint};
use core::ptr;
use std::collections::{HashMap, HashSet};
use std::sync::MutexGuard;
use std::thread::ThreadId;

use cumem_sys::{CUcontext, CUctxCreateParams, CUdevice, CUresult};

use crate::books::{Kind, Leak};
use crate::instance::{Answer, Instance, State, fresh_handle, put};
use crate::memory::ArenaKey;
use crate::memory::region::Arena;
use crate::stream::Stream;
use crate::thread_stack;

/// What a context of today's API says of itself.
const API_VERSION: c_uint = 3020;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: CUdevice,
    pub(crate) is_primary: bool,
    /// False once it was destroyed; the handle can still be current on a thread.
    pub(crate) is_alive: bool,
    /// The memory that allocations of a kind are cut from.
    pub(crate) arenas: HashMap<ArenaKey, Arena>,
    /// The stream that null means.
    pub(crate) null_stream: usize,
    /// The streams that "per thread" means.
    pub(crate) thread_streams: HashMap<ThreadId, usize>,
    pub(crate) peers: HashSet<usize>,
}

pub(crate) fn as_handle(context: usize) -> CUcontext {
    ptr::without_provenance_mut(context)
}

impl State {
    fn make_context(&mut self, handle: usize, device: CUdevice, is_primary: bool) {
        let null_stream = fresh_handle();
        self.streams.insert(null_stream, Stream::null(handle));
        self.contexts.insert(
            handle,
            Context {
                device,
                is_primary,
                is_alive: true,
                arenas: HashMap::new(),
                null_stream,
                thread_streams: HashMap::new(),
                peers: HashSet::new(),
            },
        );
    }

    /// A context that is alive.
    pub(crate) fn context(&self, handle: usize) -> Answer<&Context> {
        match self.contexts.get(&handle) {
            Some(context) if context.is_alive => Ok(context),
            Some(_) => Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED),
            None => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
        }
    }

    /// Takes what is in a context, and marks it as gone.
    fn destroy_context(&mut self, handle: usize) {
        let Some(context) = self.contexts.get_mut(&handle) else {
            return;
        };
        context.is_alive = false;
        let device = context.device;
        context.peers.clear();
        let mut leak = Leak {
            context: handle as u64,
            device,
            count: 0,
            bytes: 0,
        };
        let goes = |kind| {
            matches!(
                kind,
                Kind::Device | Kind::Managed | Kind::Pinned | Kind::Registered
            )
        };
        let pointers: Vec<u64> = self
            .allocations
            .iter()
            .filter(|(_, one)| one.context == handle && goes(one.kind))
            .map(|(&pointer, _)| pointer)
            .collect();
        for pointer in pointers {
            if let Some(allocation) = self.remove(pointer) {
                leak.count += 1;
                leak.bytes += allocation.bytes;
                self.give_back(&allocation);
            }
        }
        // A free that is waiting still has a block of one of these; it finds nothing to give it to.
        let arenas = self
            .contexts
            .get_mut(&handle)
            .map(|context| core::mem::take(&mut context.arenas));
        for (key, arena) in arenas.into_iter().flatten() {
            self.retire(key.kind(), device, arena.into_regions());
        }
        if leak.count > 0 {
            self.history.leaked.push(leak);
        }
        self.streams.retain(|_, stream| stream.context() != handle);
        self.events.retain(|_, event| event.context() != handle);
    }
}

impl Instance {
    pub(crate) fn top_of_stack(&self) -> Option<usize> {
        thread_stack::current(self.number()).filter(|&context| context != 0)
    }

    /// The context that is current on this thread.
    pub(crate) fn current(&self, state: &State) -> Answer<usize> {
        let handle = self
            .top_of_stack()
            .ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        state.context(handle)?;
        Ok(handle)
    }

    /// Destroys a context after its work is done.
    fn destroy_when_idle(&self, mut state: MutexGuard<'_, State>, handle: usize) {
        let ends = state.ends_of(|stream| stream.context() == handle);
        state = self.wait_for(state, &ends);
        state.destroy_context(handle);
        drop(state);
        self.progress.notify_all();
    }

    /// Destroys a context at once.
    pub(crate) fn destroy_from_outside(&self, handle: usize) -> bool {
        let mut state = self.state();
        if state.context(handle).is_err() {
            return false;
        }
        for stream in state.streams.values_mut() {
            if stream.context() == handle {
                stream.abandon();
            }
        }
        while state
            .streams
            .values()
            .any(|stream| stream.context() == handle && stream.is_running())
        {
            state = self.wait(state);
        }
        for device in &mut state.devices {
            if device.primary == handle {
                device.references = 0;
            }
        }
        state.destroy_context(handle);
        state.guard_managed();
        drop(state);
        self.progress.notify_all();
        true
    }

    fn release_primary(&self, device: CUdevice) -> Answer {
        let mut state = self.state();
        let one = state.device(device)?;
        if one.references == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
        }
        one.references -= 1;
        if one.references == 0 {
            let handle = one.primary;
            self.destroy_when_idle(state, handle);
        }
        Ok(())
    }

    fn reset_primary(&self, device: CUdevice) -> Answer {
        let mut state = self.state();
        let one = state.device(device)?;
        one.references = 0;
        let handle = one.primary;
        if state.context(handle).is_ok() {
            self.destroy_when_idle(state, handle);
        }
        Ok(())
    }

    fn create(&self, context: *mut CUcontext, flags: c_uint, device: CUdevice) -> Answer {
        self.is_device(device)?;
        if context.is_null() || flags & !0xff != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let handle = fresh_handle();
        if !thread_stack::push(self.number(), handle) {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        self.state().make_context(handle, device, false);
        // SAFETY: it isn't null, and the caller gave a place for a handle.
        unsafe { put(context, as_handle(handle)) }
    }
}

#[expect(non_snake_case, reason = "the entry points' names")]
impl Instance {
    pub(crate) unsafe fn cuDevicePrimaryCtxRetain(
        &self,
        context: *mut CUcontext,
        device: CUdevice,
    ) -> Answer {
        let mut state = self.state();
        let one = state.device(device)?;
        let handle = one.primary;
        // SAFETY: the caller gave a place for a handle, or null.
        unsafe { put(context, as_handle(handle)) }?;
        one.references += 1;
        if state.context(handle).is_err() {
            state.make_context(handle, device, true);
        }
        Ok(())
    }

    pub(crate) unsafe fn cuDevicePrimaryCtxRelease_v2(&self, device: CUdevice) -> Answer {
        self.release_primary(device)
    }

    pub(crate) unsafe fn cuDevicePrimaryCtxRelease(&self, device: CUdevice) -> Answer {
        self.release_primary(device)
    }

    pub(crate) unsafe fn cuDevicePrimaryCtxReset_v2(&self, device: CUdevice) -> Answer {
        self.reset_primary(device)
    }

    pub(crate) unsafe fn cuDevicePrimaryCtxReset(&self, device: CUdevice) -> Answer {
        self.reset_primary(device)
    }

    pub(crate) unsafe fn cuDevicePrimaryCtxSetFlags_v2(
        &self,
        device: CUdevice,
        flags: c_uint,
    ) -> Answer {
        let mut state = self.state();
        let one = state.device(device)?;
        if flags & !0xff != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        one.primary_flags = flags;
        Ok(())
    }

    pub(crate) unsafe fn cuDevicePrimaryCtxSetFlags(
        &self,
        device: CUdevice,
        flags: c_uint,
    ) -> Answer {
        // SAFETY: passed on; the form is the same.
        unsafe { self.cuDevicePrimaryCtxSetFlags_v2(device, flags) }
    }

    pub(crate) unsafe fn cuDevicePrimaryCtxGetState(
        &self,
        device: CUdevice,
        flags: *mut c_uint,
        active: *mut c_int,
    ) -> Answer {
        let mut state = self.state();
        let one = state.device(device)?;
        let (handle, current_flags) = (one.primary, one.primary_flags);
        let is_active = state.context(handle).is_ok();
        // SAFETY: the caller gave places for two integers, or null.
        unsafe {
            put(flags, current_flags)?;
            put(active, c_int::from(is_active))
        }
    }

    pub(crate) unsafe fn cuCtxCreate_v2(
        &self,
        context: *mut CUcontext,
        flags: c_uint,
        device: CUdevice,
    ) -> Answer {
        self.create(context, flags, device)
    }

    pub(crate) unsafe fn cuCtxCreate_v4(
        &self,
        context: *mut CUcontext,
        parameters: *mut CUctxCreateParams,
        flags: c_uint,
        device: CUdevice,
    ) -> Answer {
        if !parameters.is_null() {
            // Execution affinity and graphics interoperation aren't simulated.
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        self.create(context, flags, device)
    }

    pub(crate) unsafe fn cuCtxDestroy_v2(&self, context: CUcontext) -> Answer {
        let state = self.state();
        let handle = context.addr();
        let one = state.context(handle)?;
        if one.is_primary {
            return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
        }
        self.destroy_when_idle(state, handle);
        if self.top_of_stack() == Some(handle) {
            thread_stack::pop(self.number());
        }
        Ok(())
    }

    pub(crate) unsafe fn cuCtxDestroy(&self, context: CUcontext) -> Answer {
        // SAFETY: passed on; the form is the same.
        unsafe { self.cuCtxDestroy_v2(context) }
    }

    pub(crate) unsafe fn cuCtxPushCurrent_v2(&self, context: CUcontext) -> Answer {
        self.state().context(context.addr())?;
        if thread_stack::push(self.number(), context.addr()) {
            Ok(())
        } else {
            Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
        }
    }

    pub(crate) unsafe fn cuCtxPushCurrent(&self, context: CUcontext) -> Answer {
        // SAFETY: passed on; the form is the same.
        unsafe { self.cuCtxPushCurrent_v2(context) }
    }

    pub(crate) unsafe fn cuCtxPopCurrent_v2(&self, context: *mut CUcontext) -> Answer {
        let popped =
            thread_stack::pop(self.number()).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        if !context.is_null() {
            // SAFETY: the caller gave a place for a handle.
            unsafe { put(context, as_handle(popped)) }?;
        }
        Ok(())
    }

    pub(crate) unsafe fn cuCtxPopCurrent(&self, context: *mut CUcontext) -> Answer {
        // SAFETY: passed on; the form is the same.
        unsafe { self.cuCtxPopCurrent_v2(context) }
    }

    pub(crate) unsafe fn cuCtxGetCurrent(&self, context: *mut CUcontext) -> Answer {
        let current = self.top_of_stack().unwrap_or(0);
        // SAFETY: the caller gave a place for a handle, or null.
        unsafe { put(context, as_handle(current)) }
    }

    pub(crate) unsafe fn cuCtxSetCurrent(&self, context: CUcontext) -> Answer {
        if !context.is_null() {
            self.state().context(context.addr())?;
        }
        if thread_stack::set(self.number(), context.addr()) {
            Ok(())
        } else {
            Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
        }
    }

    pub(crate) unsafe fn cuCtxGetDevice(&self, device: *mut CUdevice) -> Answer {
        let state = self.state();
        let current = self.current(&state)?;
        // SAFETY: the caller gave a place for one, or null.
        unsafe { put(device, state.context(current)?.device) }
    }

    pub(crate) unsafe fn cuCtxSynchronize(&self) -> Answer {
        let state = self.state();
        let current = self.current(&state)?;
        let device = state.context(current)?.device;
        let ends = state.ends_of(|stream| stream.context() == current);
        let mut state = self.wait_for(state, &ends);
        state.trim_to_thresholds(device);
        Ok(())
    }

    pub(crate) unsafe fn cuCtxGetApiVersion(
        &self,
        context: CUcontext,
        version: *mut c_uint,
    ) -> Answer {
        let state = self.state();
        if context.is_null() {
            self.current(&state)?;
        } else {
            state.context(context.addr())?;
        }
        // SAFETY: the caller gave a place for one, or null.
        unsafe { put(version, API_VERSION) }
    }

    pub(crate) unsafe fn cuCtxEnablePeerAccess(&self, peer: CUcontext, flags: c_uint) -> Answer {
        let mut state = self.state();
        let current = self.current(&state)?;
        if flags != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let own = state.context(current)?.device;
        let other = state
            .context(peer.addr())
            .map_err(|_| CUresult::CUDA_ERROR_INVALID_CONTEXT)?
            .device;
        if peer.addr() == current {
            return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
        }
        if own == other {
            return Err(CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        }
        let added = state
            .contexts
            .get_mut(&current)
            .is_some_and(|context| context.peers.insert(peer.addr()));
        if added {
            Ok(())
        } else {
            Err(CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
        }
    }

    pub(crate) unsafe fn cuCtxDisablePeerAccess(&self, peer: CUcontext) -> Answer {
        let mut state = self.state();
        let current = self.current(&state)?;
        state
            .context(peer.addr())
            .map_err(|_| CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        let removed = state
            .contexts
            .get_mut(&current)
            .is_some_and(|context| context.peers.remove(&peer.addr()));
        if removed {
            Ok(())
        } else {
            Err(CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED)
        }
    }
}
