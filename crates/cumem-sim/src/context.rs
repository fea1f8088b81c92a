//! Contexts, and each thread's stack of them.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_int, c_uint};
use std::ptr;

use cumem_sys::{CUcontext, CUctxCreateParams, CUdevice, CUresult};

use crate::device::check_device;
use crate::instance::{Answer, Instance, State};

thread_local! {
    /// The stack of this thread in each simulated driver, by the driver's id.
    static STACKS: RefCell<HashMap<u64, Vec<CUcontext>>> = RefCell::default();
}

/// The contexts of one simulated driver.
#[derive(Debug)]
pub(crate) struct Contexts {
    /// The device of each live context, by handle.
    live: BTreeMap<usize, i32>,
    primary: Vec<Primary>,
    made: usize,
}

#[derive(Clone, Debug)]
struct Primary {
    handle: CUcontext,
    references: u64,
    flags: c_uint,
}

impl Contexts {
    pub(crate) fn new(devices: i32) -> Self {
        let primary = Primary {
            handle: ptr::null_mut(),
            references: 0,
            flags: 0,
        };
        Self {
            live: BTreeMap::new(),
            primary: vec![primary; devices as usize],
            made: 0,
        }
    }

    fn make(&mut self, device: i32) -> CUcontext {
        self.made += 1;
        // A number that no program takes for memory, and that is never given twice.
        let handle: CUcontext = ptr::without_provenance_mut(0x0c07_0000_0000 + self.made * 0x100);
        self.live.insert(handle.addr(), device);
        handle
    }

    fn device_of(&self, context: CUcontext) -> Option<i32> {
        self.live.get(&context.addr()).copied()
    }
}

fn with_stack<R>(instance: &Instance, body: impl FnOnce(&mut Vec<CUcontext>) -> R) -> R {
    STACKS.with_borrow_mut(|stacks| body(stacks.entry(instance.id).or_default()))
}

/// The context that is current on this thread, and its device.
pub(crate) fn current(instance: &Instance, state: &State) -> Result<(CUcontext, i32), CUresult> {
    let top = with_stack(instance, |stack| stack.last().copied());
    match top {
        None => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
        Some(context) if context.is_null() => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
        Some(context) => state
            .contexts
            .device_of(context)
            .map(|device| (context, device))
            .ok_or(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED),
    }
}

/// Ends a context: its memory goes with it.
fn destroy(state: &mut State, context: CUcontext) {
    state.contexts.live.remove(&context.addr());
    let ended: Vec<u64> = state
        .blocks
        .iter()
        .filter(|(_, block)| block.context == context)
        .map(|(&pointer, _)| pointer)
        .collect();
    for pointer in ended {
        crate::memory::end(state, pointer);
        state.ended_with_context += 1;
    }
}

pub(crate) unsafe fn primary_retain(
    instance: &Instance,
    context: *mut CUcontext,
    device: CUdevice,
) -> Answer {
    let mut state = instance.state();
    let index = check_device(instance, device)?;
    if state.contexts.primary[index].references == 0 {
        let handle = state.contexts.make(device);
        state.contexts.primary[index].handle = handle;
    }
    let primary = &mut state.contexts.primary[index];
    primary.references += 1;
    // SAFETY: the caller of the driver passes a place for the result.
    unsafe { context.write(primary.handle) };
    Ok(())
}

pub(crate) unsafe fn primary_release(instance: &Instance, device: CUdevice) -> Answer {
    let mut state = instance.state();
    let index = check_device(instance, device)?;
    let primary = &mut state.contexts.primary[index];
    if primary.references == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    primary.references -= 1;
    if primary.references == 0 {
        let handle = primary.handle;
        destroy(&mut state, handle);
    }
    Ok(())
}

pub(crate) unsafe fn primary_reset(instance: &Instance, device: CUdevice) -> Answer {
    let mut state = instance.state();
    let index = check_device(instance, device)?;
    let primary = state.contexts.primary[index].clone();
    if primary.references > 0 {
        destroy(&mut state, primary.handle);
        // The references stay; what they name is a fresh context under the old handle.
        state.contexts.live.insert(primary.handle.addr(), device);
    }
    Ok(())
}

pub(crate) unsafe fn primary_set_flags(
    instance: &Instance,
    device: CUdevice,
    flags: c_uint,
) -> Answer {
    let mut state = instance.state();
    let index = check_device(instance, device)?;
    state.contexts.primary[index].flags = flags;
    Ok(())
}

pub(crate) unsafe fn primary_get_state(
    instance: &Instance,
    device: CUdevice,
    flags: *mut c_uint,
    active: *mut c_int,
) -> Answer {
    let state = instance.state();
    let index = check_device(instance, device)?;
    let primary = &state.contexts.primary[index];
    // SAFETY: the caller of the driver passes places for the results.
    unsafe {
        flags.write(primary.flags);
        active.write(c_int::from(primary.references > 0));
    }
    Ok(())
}

pub(crate) unsafe fn create(
    instance: &Instance,
    context: *mut CUcontext,
    _flags: c_uint,
    device: CUdevice,
) -> Answer {
    let mut state = instance.state();
    check_device(instance, device)?;
    let handle = state.contexts.make(device);
    with_stack(instance, |stack| stack.push(handle));
    // SAFETY: the caller of the driver passes a place for the result.
    unsafe { context.write(handle) };
    Ok(())
}

pub(crate) unsafe fn create_with_parameters(
    instance: &Instance,
    context: *mut CUcontext,
    _parameters: *mut CUctxCreateParams,
    flags: c_uint,
    device: CUdevice,
) -> Answer {
    // SAFETY: the same promise.
    unsafe { create(instance, context, flags, device) }
}

pub(crate) unsafe fn destroy_created(instance: &Instance, context: CUcontext) -> Answer {
    let mut state = instance.state();
    let is_primary = state
        .contexts
        .primary
        .iter()
        .any(|primary| primary.references > 0 && primary.handle == context);
    if is_primary || state.contexts.device_of(context).is_none() {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    destroy(&mut state, context);
    with_stack(instance, |stack| {
        if stack.last() == Some(&context) {
            stack.pop();
        }
    });
    Ok(())
}

pub(crate) unsafe fn push(instance: &Instance, context: CUcontext) -> Answer {
    let state = instance.state();
    if state.contexts.device_of(context).is_none() {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    with_stack(instance, |stack| stack.push(context));
    Ok(())
}

pub(crate) unsafe fn pop(instance: &Instance, context: *mut CUcontext) -> Answer {
    let popped = with_stack(instance, Vec::pop).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
    if !context.is_null() {
        // SAFETY: the caller of the driver passes a place for the result, or null.
        unsafe { context.write(popped) };
    }
    Ok(())
}

pub(crate) unsafe fn get_current(instance: &Instance, context: *mut CUcontext) -> Answer {
    let top = with_stack(instance, |stack| stack.last().copied());
    // SAFETY: the caller of the driver passes a place for the result.
    unsafe { context.write(top.unwrap_or(ptr::null_mut())) };
    Ok(())
}

pub(crate) unsafe fn set_current(instance: &Instance, context: CUcontext) -> Answer {
    if !context.is_null() && instance.state().contexts.device_of(context).is_none() {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    with_stack(instance, |stack| {
        stack.pop();
        if !context.is_null() {
            stack.push(context);
        }
    });
    Ok(())
}

pub(crate) unsafe fn get_device(instance: &Instance, device: *mut CUdevice) -> Answer {
    let (_, ordinal) = current(instance, &instance.state())?;
    // SAFETY: the caller of the driver passes a place for the result.
    unsafe { device.write(ordinal) };
    Ok(())
}

pub(crate) unsafe fn synchronize(instance: &Instance) -> Answer {
    current(instance, &instance.state()).map(|_| ())
}

pub(crate) unsafe fn get_api_version(
    instance: &Instance,
    context: CUcontext,
    version: *mut c_uint,
) -> Answer {
    let state = instance.state();
    if context.is_null() {
        current(instance, &state)?;
    } else if state.contexts.device_of(context).is_none() {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    // SAFETY: the caller of the driver passes a place for the result.
    unsafe { version.write(3020) };
    Ok(())
}
