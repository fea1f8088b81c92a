//! Streams: order, and waiting.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::sync::mpsc::channel;

use cumem_sys::{CUresult, CUstream, CUstream_flags as F};

use super::{KIB, code};
use crate::behaviour::{Check, behaviours, call, holds, refused, same};
use crate::gate::Gate;
use crate::ground::{Ground, host, number};

const NULL: CUstream = ptr::null_mut();

/// How long a call that must wait is watched.
const WATCHED: Duration = Duration::from_millis(200);

/// A stream that isn't tied to the null stream.
fn free_stream(g: &Ground<'_>) -> Check<CUstream> {
    Ok(g.stream_create(F::CU_STREAM_NON_BLOCKING)?)
}

/// Counts up, by a stream.
unsafe extern "C" fn count(data: *mut c_void) {
    // SAFETY: the data is a counter that outlives the stream's work.
    unsafe { &*data.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
}

fn counted(g: &Ground<'_>, stream: CUstream, counter: &AtomicU32) -> Check {
    let data = (&raw const *counter).cast_mut().cast();
    Ok(call!(g.launch_host_func(stream, Some(count), data))?)
}

/// Whether a call returns while a stream is held up; it must return once the stream goes on.
pub(super) fn waits(
    g: &Ground<'_>,
    stream: CUstream,
    call: impl FnOnce(&Ground<'_>) -> Check + Send,
) -> Check<bool> {
    let gate = Gate::close(g, stream)?;
    let (sender, receiver) = channel();
    std::thread::scope(|scope| {
        let caller = scope.spawn(move || {
            let result = call(g);
            let _ = sender.send(());
            result
        });
        let waited = receiver.recv_timeout(WATCHED).is_err();
        gate.open();
        caller.join().unwrap_or_else(|_| holds(false, "panicked"))?;
        call!(g.stream_synchronize(stream))?;
        Ok(waited)
    })
}

/// Whether the null stream waits for a stream of these flags that is held up.
fn null_waits_for(g: &Ground<'_>, flags: F) -> Check<bool> {
    let stream = g.stream_create(flags)?;
    let gate = Gate::close(g, stream)?;
    let device = g.mem_alloc(KIB)?;
    // Not a function: those wait for each other anyway.
    call!(g.memset_d8_async(device, 1, KIB, NULL))?;
    let (sender, receiver) = channel();
    let waited = std::thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            let waited = call!(g.ctx_set_current(g.context()))
                .and_then(|()| call!(g.stream_synchronize(NULL)));
            let _ = sender.send(());
            waited
        });
        let waited = receiver.recv_timeout(WATCHED).is_err();
        gate.open();
        match waiting.join() {
            Ok(result) => result?,
            Err(_) => holds(false, "panicked")?,
        }
        Ok::<_, crate::behaviour::Stop>(waited)
    })?;
    g.ctx_synchronize()?;
    call!(g.stream_destroy(stream))?;
    call!(g.mem_free(device))?;
    Ok(waited)
}

behaviours! {
    area "stream";

    /// Unknown flags are refused.
    shared fn unknown_flags_are_refused(g) {
        refused(g.stream_create(F(8)), code::INVALID_VALUE)?;
    }

    /// An idle stream is ready.
    shared fn an_idle_one_is_ready(g) {
        let stream = free_stream(g)?;
        same(call!(g.stream_query(stream))?, true)?;
        call!(g.stream_synchronize(stream))?;
        call!(g.stream_destroy(stream))?;
    }

    /// A stream with work to do is not ready.
    shared fn a_busy_one_is_not_ready(g) {
        let stream = free_stream(g)?;
        let gate = Gate::close(g, stream)?;
        let busy = call!(g.stream_query(stream))?;
        gate.open();
        call!(g.stream_synchronize(stream))?;
        let idle = call!(g.stream_query(stream))?;
        call!(g.stream_destroy(stream))?;
        same((busy, idle), (false, true))?;
    }

    /// Functions run in the order in which they were put in.
    shared fn functions_run_in_order(g) {
        unsafe extern "C" fn note(data: *mut c_void) {
            // SAFETY: the data is a pair of a list and a number, which outlives the work.
            let (list, number) = unsafe { &*data.cast::<(&std::sync::Mutex<Vec<u32>>, u32)>() };
            if let Ok(mut list) = list.lock() {
                list.push(*number);
            }
        }
        let list = std::sync::Mutex::new(Vec::new());
        let pairs: Vec<_> = (0..50).map(|number| (&list, number)).collect();
        let stream = free_stream(g)?;
        for pair in &pairs {
            let data = (&raw const *pair).cast_mut().cast();
            call!(g.launch_host_func(stream, Some(note), data))?;
        }
        call!(g.stream_synchronize(stream))?;
        call!(g.stream_destroy(stream))?;
        same(list.lock().map(|list| list.clone()).unwrap_or_default(), (0..50).collect())?;
    }

    /// A copy doesn't happen before its turn.
    shared fn a_copy_waits_for_its_turn(g) {
        let stream = free_stream(g)?;
        let managed = g.managed(KIB)?;
        let pinned = g.mem_host_alloc(2 * KIB, 0)?;
        let target = pinned.wrapping_byte_add(KIB);
        // SAFETY: the memory is live, and nothing else uses it yet.
        unsafe { pinned.cast::<u8>().write_bytes(1, 2 * KIB) };
        call!(g.memset_d8(managed, 2, KIB))?;
        g.ctx_synchronize()?;
        let gate = Gate::close(g, stream)?;
        call!(g.memcpy_dtoh_async(target, managed, KIB, stream))?;
        // SAFETY: the copy is held up.
        let before = unsafe { target.cast::<u8>().read_volatile() };
        gate.open();
        call!(g.stream_synchronize(stream))?;
        // SAFETY: the copy is done.
        let after = unsafe { target.cast::<u8>().read_volatile() };
        call!(g.stream_destroy(stream))?;
        call!(g.mem_free(managed))?;
        call!(g.mem_free_host(pinned))?;
        same((before, after), (1, 2))?;
    }

    /// One stream goes on while another is held up.
    shared fn goes_on_while_another_is_held_up(g) {
        let (held, going) = (free_stream(g)?, free_stream(g)?);
        let device = g.mem_alloc(KIB)?;
        let gate = Gate::close(g, held)?;
        call!(g.memset_d8_async(device, 3, KIB, going))?;
        call!(g.stream_synchronize(going))?;
        let held_up = call!(g.stream_query(held))?;
        gate.open();
        call!(g.stream_synchronize(held))?;
        call!(g.stream_destroy(held))?;
        call!(g.stream_destroy(going))?;
        call!(g.mem_free(device))?;
        same(held_up, false)?;
    }

    /// The null stream waits for a blocking stream.
    shared fn null_waits_for_a_blocking_one(g) {
        same(null_waits_for(g, F::CU_STREAM_DEFAULT)?, true)?;
    }

    /// The null stream doesn't wait for a non-blocking stream.
    shared fn null_does_not_wait_for_a_non_blocking_one(g) {
        same(null_waits_for(g, F::CU_STREAM_NON_BLOCKING)?, false)?;
    }

    /// A blocking stream waits for the null stream.
    shared fn a_blocking_one_waits_for_null(g) {
        let stream = g.stream_create(F::CU_STREAM_DEFAULT)?;
        let gate = Gate::close(g, NULL)?;
        let device = g.mem_alloc(KIB)?;
        call!(g.memset_d8_async(device, 1, KIB, stream))?;
        let ready = call!(g.stream_query(stream))?;
        gate.open();
        call!(g.stream_synchronize(stream))?;
        call!(g.stream_destroy(stream))?;
        call!(g.mem_free(device))?;
        same(ready, false)?;
    }

    /// Synchronising the context waits for all of its streams.
    shared fn synchronising_the_context_waits_for_all(g) {
        let stream = free_stream(g)?;
        let waited = waits(g, stream, |g| {
            call!(g.ctx_set_current(g.context()))?;
            Ok(g.ctx_synchronize()?)
        })?;
        call!(g.stream_destroy(stream))?;
        same(waited, true)?;
    }

    /// Destroying a stream doesn't wait, and its work is still done.
    shared fn work_outlives_its_stream(g) {
        let stream = free_stream(g)?;
        let counter = AtomicU32::new(0);
        let gate = Gate::close(g, stream)?;
        counted(g, stream, &counter)?;
        call!(g.stream_destroy(stream))?;
        same(counter.load(Ordering::SeqCst), 0)?;
        gate.open();
        g.ctx_synchronize()?;
        // A context that doesn't count a destroyed stream's work would be done before it.
        for _ in 0..2000 {
            if counter.load(Ordering::SeqCst) == 1 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        holds(false, "the work was never done")?;
    }

    /// A stream knows its context.
    shared fn knows_its_context(g) {
        let stream = free_stream(g)?;
        let found = call!(g.stream_get_ctx(stream))?;
        call!(g.stream_destroy(stream))?;
        same(found, g.context())?;
        same(call!(g.stream_get_ctx(NULL))?, g.context())?;
    }

    /// A stream has a priority, or the nearest there is.
    shared fn takes_any_priority(g) {
        for priority in [-100, 0, 100] {
            let stream = g.stream_create_with_priority(F::CU_STREAM_DEFAULT, priority)?;
            call!(g.stream_destroy(stream))?;
        }
    }

    /// The null stream needs a context.
    shared fn null_needs_a_context(g) {
        g.elsewhere(|g| {
            refused(call!(g.stream_synchronize(NULL)), code::INVALID_CONTEXT)?;
            refused(call!(g.stream_query(NULL)), code::INVALID_CONTEXT)
        })?;
    }

    /// A stream that was made needs none to be waited for.
    shared fn is_waited_for_without_a_context(g) {
        let stream = number(free_stream(g)?);
        let result = g.elsewhere(|g| {
            let stream: CUstream = host(stream);
            Ok((call!(g.stream_synchronize(stream)), call!(g.stream_query(stream))))
        })?;
        call!(g.stream_destroy(host(stream)))?;
        result.0?;
        same(result.1?, true)?;
    }

    /// No function is refused.
    shared fn no_function_is_refused(g) {
        let result = call!(g.launch_host_func(NULL, None, ptr::null_mut()));
        refused(result, code::INVALID_VALUE)?;
    }

    /// The null stream can't be destroyed.
    alone fn null_is_not_destroyed(g) {
        refused(call!(g.stream_destroy(NULL)), code::INVALID_HANDLE)?;
    }

    /// A function that a stream calls can't call the driver.
    alone fn functions_can_not_call_the_driver(g) {
        struct Shared {
            driver: cumem_sys::Driver,
            code: std::sync::Mutex<Option<Result<u64, cumem_sys::CuError>>>,
        }
        unsafe extern "C" fn allocate(data: *mut c_void) {
            // SAFETY: the data outlives the work.
            let shared = unsafe { &*data.cast::<Shared>() };
            if let Ok(mut code) = shared.code.lock() {
                *code = Some(shared.driver.mem_alloc(256));
            }
        }
        let stream = free_stream(g)?;
        let shared = Shared { driver: (**g).clone(), code: std::sync::Mutex::new(None) };
        let data = (&raw const shared).cast_mut().cast();
        call!(g.launch_host_func(stream, Some(allocate), data))?;
        call!(g.stream_synchronize(stream))?;
        let answer = shared.code.lock().ok().and_then(|code| *code);
        match answer {
            Some(result) => refused(result, CUresult::CUDA_ERROR_NOT_PERMITTED)?,
            None => holds(false, "it was never called")?,
        }
    }

    /// A function that takes long holds up the functions of other streams.
    shared fn functions_wait_for_each_other(g) {
        let (held, other) = (free_stream(g)?, free_stream(g)?);
        let counter = AtomicU32::new(0);
        let gate = Gate::close(g, held)?;
        counted(g, other, &counter)?;
        let (sender, receiver) = channel();
        let address = number(other);
        let waited = std::thread::scope(|scope| {
            let waiting = scope.spawn(move || {
                let waited = call!(g.stream_synchronize(host(address)));
                let _ = sender.send(());
                waited
            });
            let waited = receiver.recv_timeout(WATCHED).is_err();
            gate.open();
            match waiting.join() {
                Ok(result) => result?,
                Err(_) => holds(false, "panicked")?,
            }
            Ok::<_, crate::behaviour::Stop>(waited)
        })?;
        g.ctx_synchronize()?;
        call!(g.stream_destroy(held))?;
        call!(g.stream_destroy(other))?;
        same(waited, true)?;
    }

    /// Functions of streams of different contexts wait for each other as well.
    alone fn functions_wait_across_contexts(g) {
        let held = free_stream(g)?;
        let gate = Gate::close(g, held)?;
        let flags = cumem_sys::CUctx_flags::CU_CTX_SCHED_AUTO;
        let context = g.ctx_create(flags, g.device())?;
        let other = free_stream(g)?;
        let counter = AtomicU32::new(0);
        counted(g, other, &counter)?;
        let (sender, receiver) = channel();
        let address = number(other);
        let waited = std::thread::scope(|scope| {
            let waiting = scope.spawn(move || {
                let waited = call!(g.stream_synchronize(host(address)));
                let _ = sender.send(());
                waited
            });
            let waited = receiver.recv_timeout(WATCHED).is_err();
            gate.open();
            match waiting.join() {
                Ok(result) => result?,
                Err(_) => holds(false, "panicked")?,
            }
            Ok::<_, crate::behaviour::Stop>(waited)
        })?;
        call!(g.stream_synchronize(held))?;
        call!(g.ctx_destroy(context))?;
        same(waited, false)?;
    }

    /// Freeing device memory waits for work of a blocking stream.
    shared fn freeing_waits_for_a_blocking_one(g) {
        let stream = g.stream_create(F::CU_STREAM_DEFAULT)?;
        let pointer = g.mem_alloc(4 << 20)?;
        let waited = waits(g, stream, |g| {
            call!(g.ctx_set_current(g.context()))?;
            Ok(call!(g.mem_free(pointer))?)
        })?;
        call!(g.stream_destroy(stream))?;
        same(waited, true)?;
    }

    /// Freeing device memory waits for work of a non-blocking stream.
    shared fn freeing_waits_for_a_non_blocking_one(g) {
        let stream = free_stream(g)?;
        let pointer = g.mem_alloc(4 << 20)?;
        let waited = waits(g, stream, |g| {
            call!(g.ctx_set_current(g.context()))?;
            Ok(call!(g.mem_free(pointer))?)
        })?;
        call!(g.stream_destroy(stream))?;
        same(waited, true)?;
    }

    /// Freeing managed memory waits for work under way.
    shared fn freeing_managed_memory_waits(g) {
        let stream = free_stream(g)?;
        let pointer = g.managed(4 << 20)?;
        let waited = waits(g, stream, |g| Ok(call!(g.mem_free(pointer))?))?;
        call!(g.stream_destroy(stream))?;
        same(waited, true)?;
    }

    /// Freeing pinned memory waits for work under way.
    shared fn freeing_pinned_memory_waits(g) {
        let stream = free_stream(g)?;
        let pointer = number(g.mem_host_alloc(4 << 20, 0)?);
        let waited = waits(g, stream, |g| Ok(call!(g.mem_free_host(host(pointer)))?))?;
        call!(g.stream_destroy(stream))?;
        same(waited, true)?;
    }

    /// Freeing doesn't wait for work of another context of the device.
    alone fn freeing_does_not_wait_across_contexts(g) {
        let pointer = g.mem_alloc(4 << 20)?;
        let flags = cumem_sys::CUctx_flags::CU_CTX_SCHED_AUTO;
        let context = g.ctx_create(flags, g.device())?;
        let stream = free_stream(g)?;
        let waited = waits(g, stream, |g| {
            call!(g.ctx_set_current(g.context()))?;
            Ok(call!(g.mem_free(pointer))?)
        })?;
        call!(g.stream_destroy(stream))?;
        call!(g.ctx_destroy(context))?;
        same(waited, false)?;
    }
}
