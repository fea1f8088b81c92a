//! The primary context.

use cumem_sys::CUctx_flags;

use super::{KIB, code};
use crate::behaviour::{behaviours, call, refused, same};

behaviours! {
    area "primary";

    /// Retaining it again gives the same handle.
    shared fn is_the_same_each_time(g) {
        let again = g.device_primary_ctx_retain(g.device())?;
        same(again, g.context())?;
        call!(g.device_primary_ctx_release(g.device()))?;
    }

    /// It is active while it is held.
    shared fn is_active_while_held(g) {
        same(g.device_primary_ctx_get_state(g.device())?.1, true)?;
    }

    /// Retaining it doesn't make it current.
    shared fn retaining_does_not_make_it_current(g) {
        g.elsewhere(|g| {
            g.device_primary_ctx_retain(g.device())?;
            let current = g.ctx_get_current()?;
            call!(g.device_primary_ctx_release(g.device()))?;
            same(current.is_null(), true)
        })?;
    }

    /// No device, no primary context.
    shared fn belongs_to_a_device(g) {
        refused(g.device_primary_ctx_retain(1000), code::INVALID_DEVICE)?;
        refused(g.device_primary_ctx_get_state(1000), code::INVALID_DEVICE)?;
    }

    /// Its flags can be set while it is active.
    alone fn flags_are_set_while_active(g) {
        let flags = CUctx_flags::CU_CTX_SCHED_BLOCKING_SYNC;
        g.device_primary_ctx_set_flags(g.device(), flags)?;
        let (now, _) = g.device_primary_ctx_get_state(g.device())?;
        same(now.0 & CUctx_flags::CU_CTX_SCHED_MASK.0, flags.0)?;
    }

    /// Unknown flags are refused.
    alone fn unknown_flags_are_refused(g) {
        let flags = CUctx_flags(1 << 30);
        refused(g.device_primary_ctx_set_flags(g.device(), flags), code::INVALID_VALUE)?;
    }

    /// The last release makes it inactive.
    alone fn the_last_release_ends_it(g) {
        call!(g.device_primary_ctx_release(g.device()))?;
        same(g.device_primary_ctx_get_state(g.device())?.1, false)?;
    }

    /// Releasing it more often than it was retained is refused.
    alone fn one_release_too_many_is_refused(g) {
        call!(g.device_primary_ctx_release(g.device()))?;
        let again = call!(g.device_primary_ctx_release(g.device()));
        refused(again, code::INVALID_CONTEXT)?;
    }

    /// Made again, it has the same handle.
    alone fn made_again_it_is_the_same(g) {
        call!(g.device_primary_ctx_release(g.device()))?;
        same(g.device_primary_ctx_retain(g.device())?, g.context())?;
        g.mem_get_info()?;
    }

    /// Its memory goes with the last release.
    alone fn memory_goes_with_the_last_release(g) {
        let device = g.mem_alloc(4 * KIB)?;
        let managed = g.managed(4 * KIB)?;
        let pinned = g.mem_host_alloc(4 * KIB, 0)?;
        call!(g.device_primary_ctx_release(g.device()))?;
        g.ctx_pop_current()?;
        refused(call!(g.mem_free(device)), code::INVALID_VALUE)?;
        refused(call!(g.mem_free(managed)), code::INVALID_VALUE)?;
        refused(call!(g.mem_free_host(pinned)), code::INVALID_VALUE)?;
    }

    /// After the last release it is still what is current, and refuses to be used.
    alone fn stays_current_after_the_last_release(g) {
        call!(g.device_primary_ctx_release(g.device()))?;
        same(g.ctx_get_current()?, g.context())?;
        refused(g.mem_alloc(256), code::CONTEXT_IS_DESTROYED)?;
    }

    /// While a destroyed context is current, nothing is freed.
    alone fn nothing_is_freed_under_a_destroyed_one(g) {
        let device = g.mem_alloc(4 * KIB)?;
        let pinned = g.mem_host_alloc(4 * KIB, 0)?;
        call!(g.device_primary_ctx_release(g.device()))?;
        refused(call!(g.mem_free(device)), code::CONTEXT_IS_DESTROYED)?;
        refused(call!(g.mem_free_host(pinned)), code::CONTEXT_IS_DESTROYED)?;
        refused(call!(g.mem_free(0)), code::CONTEXT_IS_DESTROYED)?;
    }

    /// While a destroyed context is current, a pointer that went with it is unknown.
    alone fn a_pointer_is_unknown_under_a_destroyed_one(g) {
        let pointer = g.mem_alloc(4 * KIB)?;
        call!(g.device_primary_ctx_release(g.device()))?;
        refused(g.pointer_memory_type(pointer), code::INVALID_VALUE)?;
    }

    /// While a destroyed context is current, stream-ordered memory can still be asked about.
    alone fn a_pointer_is_known_under_a_destroyed_one(g) {
        let pointer = call!(g.mem_alloc_async(4 * KIB, core::ptr::null_mut()))?;
        g.ctx_synchronize()?;
        call!(g.device_primary_ctx_release(g.device()))?;
        let kind = g.pointer_memory_type(pointer)?;
        same(kind, cumem_sys::CUmemorytype::CU_MEMORYTYPE_DEVICE)?;
    }

    /// While a destroyed context is current, stream-ordered memory isn't freed either way.
    alone fn stream_ordered_memory_is_not_freed_under_it(g) {
        let pointer = call!(g.mem_alloc_async(4 * KIB, core::ptr::null_mut()))?;
        g.ctx_synchronize()?;
        call!(g.device_primary_ctx_release(g.device()))?;
        refused(call!(g.mem_free(pointer)), code::CONTEXT_IS_DESTROYED)?;
        let ordered = call!(g.mem_free_async(pointer, core::ptr::null_mut()));
        refused(ordered, code::CONTEXT_IS_DESTROYED)?;
    }

    /// Retained again, it frees what was stream-ordered before.
    alone fn made_again_it_frees_what_was_stream_ordered(g) {
        let pointer = call!(g.mem_alloc_async(4 * KIB, core::ptr::null_mut()))?;
        g.ctx_synchronize()?;
        call!(g.device_primary_ctx_release(g.device()))?;
        g.device_primary_ctx_retain(g.device())?;
        call!(g.mem_free_async(pointer, core::ptr::null_mut()))?;
        g.ctx_synchronize()?;
    }

    /// A reset takes its memory, and leaves it inactive.
    alone fn a_reset_empties_it(g) {
        let pointer = g.mem_alloc(4 * KIB)?;
        call!(g.device_primary_ctx_reset(g.device()))?;
        g.ctx_pop_current()?;
        refused(call!(g.mem_free(pointer)), code::INVALID_VALUE)?;
        let (_, active) = g.device_primary_ctx_get_state(g.device())?;
        same(active, false)?;
    }

    /// After a reset it can be retained again, and used.
    alone fn is_usable_again_after_a_reset(g) {
        call!(g.device_primary_ctx_reset(g.device()))?;
        let context = g.device_primary_ctx_retain(g.device())?;
        call!(g.ctx_set_current(context))?;
        let pointer = g.mem_alloc(256)?;
        call!(g.mem_free(pointer))?;
        g.note(format!("the same handle: {}", context == g.context()));
    }

    /// What was stream-ordered outlives a reset.
    alone fn stream_ordered_memory_outlives_a_reset(g) {
        let pointer = call!(g.mem_alloc_async(4 * KIB, core::ptr::null_mut()))?;
        g.ctx_synchronize()?;
        call!(g.device_primary_ctx_reset(g.device()))?;
        g.ctx_pop_current()?;
        call!(g.mem_free(pointer))?;
    }
}
