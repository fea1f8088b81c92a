//! Contexts, and which is current.

use core::ptr;

use cumem_sys::{CUctx_flags, CUevent_flags, CUmemAttach_flags, CUstream_flags};

use super::{KIB, code};
use crate::behaviour::{behaviours, call, holds, refused, same};

const FLAGS: CUctx_flags = CUctx_flags::CU_CTX_SCHED_AUTO;

behaviours! {
    area "context";

    /// None is current on a new thread.
    shared fn none_is_current_on_a_new_thread(g) {
        g.elsewhere(|g| same(g.ctx_get_current()?.is_null(), true))?;
    }

    /// Calls that need one are refused where none is current.
    shared fn calls_that_need_one_are_refused_without(g) {
        g.elsewhere(|g| {
            refused(g.ctx_pop_current(), code::INVALID_CONTEXT)?;
            refused(g.ctx_get_device(), code::INVALID_CONTEXT)?;
            refused(g.ctx_synchronize(), code::INVALID_CONTEXT)?;
            refused(g.mem_get_info(), code::INVALID_CONTEXT)
        })?;
    }

    /// Nothing is allocated where none is current.
    shared fn nothing_is_allocated_without(g) {
        g.elsewhere(|g| {
            let global = CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL;
            refused(g.mem_alloc(256), code::INVALID_CONTEXT)?;
            refused(g.mem_alloc_managed(256, global), code::INVALID_CONTEXT)?;
            refused(g.mem_host_alloc(256, 0), code::INVALID_CONTEXT)
        })?;
    }

    /// Without one, size 0 is refused because of the context.
    shared fn the_context_is_checked_before_the_size(g) {
        g.elsewhere(|g| refused(g.mem_alloc(0), code::INVALID_CONTEXT))?;
    }

    /// Streams and events can't be made where none is current.
    shared fn streams_and_events_need_one(g) {
        g.elsewhere(|g| {
            let stream = g.stream_create(CUstream_flags::CU_STREAM_DEFAULT);
            refused(stream, code::INVALID_CONTEXT)?;
            refused(g.event_create(CUevent_flags::CU_EVENT_DEFAULT), code::INVALID_CONTEXT)
        })?;
    }

    /// Pushing and popping leaves what was there.
    shared fn push_and_pop_restore(g) {
        let before = g.ctx_get_current()?;
        call!(g.ctx_push_current(g.context()))?;
        call!(g.ctx_push_current(g.context()))?;
        same(g.ctx_pop_current()?, g.context())?;
        same(g.ctx_pop_current()?, g.context())?;
        same(g.ctx_get_current()?, before)?;
    }

    /// Setting null takes the current one off.
    shared fn setting_null_leaves_none(g) {
        g.elsewhere(|g| {
            call!(g.ctx_push_current(g.context()))?;
            call!(g.ctx_set_current(ptr::null_mut()))?;
            same(g.ctx_get_current()?.is_null(), true)?;
            refused(g.ctx_pop_current(), code::INVALID_CONTEXT)
        })?;
    }

    /// Setting null with two stacked uncovers the lower one.
    shared fn setting_null_uncovers_the_lower_one(g) {
        g.elsewhere(|g| {
            call!(g.ctx_push_current(g.context()))?;
            call!(g.ctx_push_current(g.context()))?;
            call!(g.ctx_set_current(ptr::null_mut()))?;
            same(g.ctx_get_current()?, g.context())
        })?;
    }

    /// Setting one where none is current stacks it.
    shared fn setting_one_stacks_it(g) {
        g.elsewhere(|g| {
            call!(g.ctx_set_current(g.context()))?;
            same(g.ctx_get_current()?, g.context())?;
            same(g.ctx_pop_current()?, g.context())?;
            same(g.ctx_get_current()?.is_null(), true)
        })?;
    }

    /// What one thread makes current is not current on another.
    shared fn current_is_per_thread(g) {
        g.elsewhere(|g| {
            call!(g.ctx_push_current(g.context()))?;
            g.elsewhere(|g| same(g.ctx_get_current()?.is_null(), true))
        })?;
    }

    /// The current context has a device.
    shared fn knows_its_device(g) {
        same(g.ctx_get_device()?, g.device())?;
    }

    /// A context's API version is 3020 or later.
    shared fn has_an_api_version(g) {
        let version = call!(g.ctx_get_api_version(g.context()))?;
        holds(version >= 3020, "older than any modern one")?;
        g.note(format!("version {version}"));
        same(call!(g.ctx_get_api_version(ptr::null_mut()))?, version)?;
    }

    /// A new context is current, and destroying it uncovers what was.
    alone fn a_new_one_is_current_until_destroyed(g) {
        let before = g.ctx_get_current()?;
        let context = g.ctx_create(FLAGS, g.device())?;
        holds(context != before, "not a new one")?;
        same(g.ctx_get_current()?, context)?;
        call!(g.ctx_destroy(context))?;
        same(g.ctx_get_current()?, before)?;
    }

    /// A new context on a device that isn't there is refused.
    alone fn none_is_made_on_no_device(g) {
        refused(g.ctx_create(FLAGS, 1000), code::INVALID_DEVICE)?;
    }

    /// The primary context can't be destroyed as others are.
    alone fn the_primary_one_is_not_destroyed(g) {
        refused(call!(g.ctx_destroy(g.context())), code::INVALID_CONTEXT)?;
        g.mem_get_info()?;
    }

    /// Device memory goes with its context.
    alone fn device_memory_goes_with_it(g) {
        let context = g.ctx_create(FLAGS, g.device())?;
        let pointer = g.mem_alloc(4 * KIB)?;
        call!(g.ctx_destroy(context))?;
        refused(call!(g.mem_free(pointer)), code::INVALID_VALUE)?;
    }

    /// Managed memory goes with its context.
    alone fn managed_memory_goes_with_it(g) {
        let context = g.ctx_create(FLAGS, g.device())?;
        let pointer = g.managed(4 * KIB)?;
        call!(g.ctx_destroy(context))?;
        refused(call!(g.mem_free(pointer)), code::INVALID_VALUE)?;
    }

    /// Pinned memory goes with its context.
    alone fn pinned_memory_goes_with_it(g) {
        let context = g.ctx_create(FLAGS, g.device())?;
        let pointer = g.mem_host_alloc(4 * KIB, 0)?;
        call!(g.ctx_destroy(context))?;
        refused(call!(g.mem_free_host(pointer)), code::INVALID_VALUE)?;
    }

    /// Registrations go with their context.
    alone fn registrations_go_with_it(g) {
        let mut memory = vec![0_u8; 64 * KIB];
        let context = g.ctx_create(FLAGS, g.device())?;
        call!(g.mem_host_register(memory.as_mut_ptr().cast(), memory.len(), 0))?;
        call!(g.ctx_destroy(context))?;
        let again = call!(g.mem_host_unregister(memory.as_mut_ptr().cast()));
        refused(again, cumem_sys::CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)?;
    }

    /// Stream-ordered memory outlives its context.
    alone fn stream_ordered_memory_outlives_it(g) {
        let context = g.ctx_create(FLAGS, g.device())?;
        let pointer = call!(g.mem_alloc_async(4 * KIB, ptr::null_mut()))?;
        g.ctx_synchronize()?;
        call!(g.ctx_destroy(context))?;
        call!(g.mem_free(pointer))?;
    }

    /// A destroyed context that is current elsewhere refuses every use there.
    alone fn a_destroyed_one_refuses_use_elsewhere(g) {
        let context = g.ctx_create(FLAGS, g.device())?;
        call!(g.ctx_push_current(g.context()))?;
        let (begin, begun) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel();
        let context = context.expose_provenance();
        std::thread::scope(|scope| {
            let other = scope.spawn(move || {
                let context = ptr::with_exposed_provenance_mut(context);
                call!(g.ctx_set_current(context))?;
                let _ = begin.send(());
                let _ = ended.recv();
                refused(g.mem_alloc(256), code::CONTEXT_IS_DESTROYED)?;
                refused(g.ctx_synchronize(), code::CONTEXT_IS_DESTROYED)?;
                same(g.ctx_get_current()?, context)?;
                same(g.ctx_pop_current()?, context)
            });
            let _ = begun.recv();
            let destroyed = call!(g.ctx_destroy(ptr::with_exposed_provenance_mut(context)));
            let _ = end.send(());
            let result = other.join().unwrap_or_else(|_| holds(false, "panicked"));
            destroyed?;
            result
        })?;
    }

    /// A context isn't destroyed twice.
    alone fn a_destroyed_one_is_not_destroyed_again(g) {
        let context = g.ctx_create(FLAGS, g.device())?;
        call!(g.ctx_destroy(context))?;
        // With which code varies from run to run on the real driver.
        let again = call!(g.ctx_destroy(context));
        holds(again.is_err(), "it was destroyed again")?;
    }

    /// Memory of one context can be freed while another is current.
    alone fn memory_is_freed_under_another_one(g) {
        let pointer = g.mem_alloc(4 * KIB)?;
        let context = g.ctx_create(FLAGS, g.device())?;
        call!(g.mem_free(pointer))?;
        call!(g.ctx_destroy(context))?;
    }
}
