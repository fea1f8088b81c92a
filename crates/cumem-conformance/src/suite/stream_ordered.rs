//! Memory that is allocated and freed in the order of a stream.

use core::ptr;

use cumem_sys::{CUresult, CUstream, CUstream_flags};

use super::{KIB, MIB, TOO_MUCH, code};
use crate::behaviour::{Check, behaviours, call, holds, refused, same};
use crate::gate::Gate;
use crate::ground::{Ground, host, number};

const NULL: CUstream = ptr::null_mut();

fn stream(g: &Ground<'_>) -> Check<CUstream> {
    Ok(g.stream_create(CUstream_flags::CU_STREAM_NON_BLOCKING)?)
}

behaviours! {
    area "stream_ordered";

    /// What goes there comes back.
    shared fn holds_bytes(g) {
        let stream = stream(g)?;
        let pointer = call!(g.mem_alloc_async(4 * KIB, stream))?;
        let pinned = g.mem_host_alloc(4 * KIB, 0)?;
        call!(g.memset_d8_async(pointer, 0x42, 4 * KIB, stream))?;
        call!(g.memcpy_dtoh_async(pinned, pointer, 4 * KIB, stream))?;
        call!(g.mem_free_async(pointer, stream))?;
        call!(g.stream_synchronize(stream))?;
        // SAFETY: the stream is done with it.
        same(unsafe { pinned.cast::<u8>().add(4095).read() }, 0x42)?;
        call!(g.mem_free_host(pinned))?;
        call!(g.stream_destroy(stream))?;
    }

    /// Size 0 is null, successfully.
    shared fn size_0_is_null(g) {
        same(call!(g.mem_alloc_async(0, NULL))?, 0)?;
    }

    /// More than any machine has is out of memory.
    shared fn too_much_is_out_of_memory(g) {
        refused(call!(g.mem_alloc_async(TOO_MUCH, NULL)), code::OUT_OF_MEMORY)?;
        call!(g.stream_synchronize(NULL))?;
    }

    /// It lies 512 bytes apart, at low addresses.
    shared fn lies_512_apart(g) {
        let mut blocks = Vec::new();
        for _ in 0..50 {
            blocks.push(call!(g.mem_alloc_async(1, NULL))?);
        }
        let mut sorted = blocks.clone();
        sorted.sort_unstable();
        let step = sorted.windows(2).map(|pair| pair[1] - pair[0]).min();
        for pointer in blocks {
            call!(g.mem_free_async(pointer, NULL))?;
        }
        g.ctx_synchronize()?;
        g.note(format!("from {:#x} on", sorted[0]));
        same(step, Some(512))?;
        holds(sorted[0] < 1 << 40, "at high addresses")?;
    }

    /// The host can't touch it.
    dies fn the_host_can_not_touch_it(g) {
        let pointer = call!(g.mem_alloc_async(4 * KIB, NULL))?;
        g.ctx_synchronize()?;
        // SAFETY: this process is here to die of it.
        unsafe { host::<u8>(pointer).write_volatile(1) };
    }

    /// It can be freed as plain device memory.
    shared fn is_freed_as_device_memory(g) {
        let pointer = call!(g.mem_alloc_async(4 * KIB, NULL))?;
        g.ctx_synchronize()?;
        call!(g.mem_free(pointer))?;
        refused(call!(g.mem_free(pointer)), code::INVALID_VALUE)?;
    }

    /// Plain device memory can be freed in stream order.
    shared fn device_memory_is_freed_in_order(g) {
        let pointer = g.mem_alloc(4 * KIB)?;
        call!(g.mem_free_async(pointer, NULL))?;
        g.ctx_synchronize()?;
        refused(call!(g.mem_free(pointer)), code::INVALID_VALUE)?;
    }

    /// Freeing twice is refused.
    shared fn a_double_free_is_refused(g) {
        let pointer = call!(g.mem_alloc_async(4 * KIB, NULL))?;
        call!(g.mem_free_async(pointer, NULL))?;
        refused(call!(g.mem_free_async(pointer, NULL)), code::INVALID_VALUE)?;
        g.ctx_synchronize()?;
    }

    /// Managed memory isn't freed in stream order.
    shared fn managed_memory_is_not_freed_in_order(g) {
        let pointer = g.managed(4 * KIB)?;
        let result = call!(g.mem_free_async(pointer, NULL));
        g.ctx_synchronize()?;
        if result.is_err() {
            call!(g.mem_free(pointer))?;
        }
        refused(result, CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
    }

    /// Pinned memory isn't freed in stream order.
    shared fn pinned_memory_is_not_freed_in_order(g) {
        let pointer = g.mem_host_alloc(4 * KIB, 0)?;
        let result = call!(g.mem_free_async(number(pointer), NULL));
        g.ctx_synchronize()?;
        if result.is_err() {
            call!(g.mem_free_host(pointer))?;
        }
        refused(result, code::INVALID_VALUE)?;
    }

    /// Freeing null in stream order does nothing, successfully.
    shared fn null_is_freed(g) {
        call!(g.mem_free_async(0, NULL))?;
    }

    /// Freeing it as plain device memory doesn't wait for work under way.
    shared fn freeing_it_does_not_wait(g) {
        let stream = stream(g)?;
        let pointer = call!(g.mem_alloc_async(4 * MIB, stream))?;
        call!(g.stream_synchronize(stream))?;
        let waited = super::stream::waits(g, stream, |g| Ok(call!(g.mem_free(pointer))?))?;
        call!(g.stream_destroy(stream))?;
        same(waited, false)?;
    }

    /// A pointer in its middle isn't freed.
    shared fn freeing_the_middle_is_refused(g) {
        let pointer = call!(g.mem_alloc_async(4 * KIB, NULL))?;
        let result = call!(g.mem_free_async(pointer + 512, NULL));
        call!(g.mem_free_async(pointer, NULL))?;
        g.ctx_synchronize()?;
        refused(result, code::INVALID_VALUE)?;
    }

    /// Freed and allocated again in one stream, it is the same memory, before the stream comes to it.
    shared fn is_used_again_in_its_stream(g) {
        let stream = stream(g)?;
        let gate = Gate::close(g, stream)?;
        let first = call!(g.mem_alloc_async(MIB, stream))?;
        call!(g.mem_free_async(first, stream))?;
        let second = call!(g.mem_alloc_async(MIB, stream))?;
        call!(g.mem_free_async(second, stream))?;
        gate.open();
        call!(g.stream_synchronize(stream))?;
        call!(g.stream_destroy(stream))?;
        same(second, first)?;
    }

    /// Freed in a stream that hasn't come to it, it isn't used again in another.
    shared fn is_not_used_again_too_early(g) {
        let (held, other) = (stream(g)?, stream(g)?);
        let first = call!(g.mem_alloc_async(MIB, held))?;
        let gate = Gate::close(g, held)?;
        call!(g.mem_free_async(first, held))?;
        let second = call!(g.mem_alloc_async(MIB, other))?;
        call!(g.mem_free_async(second, other))?;
        call!(g.stream_synchronize(other))?;
        gate.open();
        call!(g.stream_synchronize(held))?;
        call!(g.stream_destroy(held))?;
        call!(g.stream_destroy(other))?;
        holds(second != first, "it was given out again too early")?;
    }

    /// It outlives its stream.
    shared fn outlives_its_stream(g) {
        let stream = stream(g)?;
        let pointer = call!(g.mem_alloc_async(4 * KIB, stream))?;
        call!(g.stream_synchronize(stream))?;
        call!(g.stream_destroy(stream))?;
        call!(g.memset_d8(pointer, 1, 4 * KIB))?;
        call!(g.mem_free_async(pointer, NULL))?;
        g.ctx_synchronize()?;
    }

    /// In the null stream, a context must be current.
    shared fn null_stream_needs_a_context(g) {
        let pointer = call!(g.mem_alloc_async(4 * KIB, NULL))?;
        g.elsewhere(|g| {
            refused(call!(g.mem_alloc_async(KIB, NULL)), code::INVALID_CONTEXT)?;
            refused(call!(g.mem_free_async(pointer, NULL)), code::INVALID_CONTEXT)
        })?;
        call!(g.mem_free_async(pointer, NULL))?;
        g.ctx_synchronize()?;
    }

    /// In a stream that was made, none need be current.
    shared fn a_stream_needs_no_context(g) {
        let stream = number(stream(g)?);
        let result = g.elsewhere(|g| {
            let stream: CUstream = host(stream);
            let pointer = call!(g.mem_alloc_async(KIB, stream))?;
            Ok(call!(g.mem_free_async(pointer, stream))?)
        });
        call!(g.stream_synchronize(host(stream)))?;
        call!(g.stream_destroy(host(stream)))?;
        result?;
    }

    /// It can be freed as plain device memory where no context is current.
    shared fn is_freed_without_a_context(g) {
        let pointer = call!(g.mem_alloc_async(4 * KIB, NULL))?;
        g.ctx_synchronize()?;
        g.elsewhere(|g| Ok(call!(g.mem_free(pointer))?))?;
    }
}
