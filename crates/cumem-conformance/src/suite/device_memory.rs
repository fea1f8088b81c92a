//! Plain device memory.

use super::{KIB, MIB, TOO_MUCH, code};
use crate::behaviour::{behaviours, call, holds, refused, same};
use crate::ground::host;

behaviours! {
    area "device_memory";

    /// Size 0 is refused.
    shared fn size_0_is_refused(g) {
        refused(g.mem_alloc(0), code::INVALID_VALUE)?;
    }

    /// More than any machine has is out of memory.
    shared fn too_much_is_out_of_memory(g) {
        refused(g.mem_alloc(TOO_MUCH), code::OUT_OF_MEMORY)?;
    }

    /// So is all of the address space.
    shared fn the_largest_size_is_out_of_memory(g) {
        refused(g.mem_alloc(usize::MAX), code::OUT_OF_MEMORY)?;
    }

    /// One byte more than the device has is out of memory, and spoils nothing.
    shared fn more_than_the_device_has_is_out_of_memory(g) {
        let total = g.device_total_mem(g.device())?;
        refused(g.mem_alloc(total + 1), code::OUT_OF_MEMORY)?;
        let pointer = g.mem_alloc(256)?;
        call!(g.mem_free(pointer))?;
    }

    /// It is aligned to 512 bytes and more.
    shared fn is_aligned_to_512(g) {
        for bytes in [1, 100, 513, 5000, 100_000] {
            let pointer = g.mem_alloc(bytes)?;
            call!(g.mem_free(pointer))?;
            same(pointer % 512, 0)?;
        }
    }

    /// Small blocks lie 512 bytes apart.
    shared fn small_blocks_lie_512_apart(g) {
        let mut blocks = Vec::new();
        for _ in 0..200 {
            blocks.push(g.mem_alloc(1)?);
        }
        let mut sorted = blocks.clone();
        sorted.sort_unstable();
        let step = sorted.windows(2).map(|pair| pair[1] - pair[0]).min();
        for pointer in blocks {
            call!(g.mem_free(pointer))?;
        }
        same(step, Some(512))?;
    }

    /// 2 MiB and more is aligned to 2 MiB.
    shared fn large_blocks_are_aligned_to_2_mib(g) {
        let blocks = [g.mem_alloc(2 * MIB)?, g.mem_alloc(6 * MIB)?];
        for pointer in blocks {
            call!(g.mem_free(pointer))?;
            same(pointer % (2 * MIB) as u64, 0)?;
        }
    }

    /// What is allocated is missing from what is free, and comes back.
    shared fn is_counted(g) {
        let (before, _) = g.mem_get_info()?;
        let pointer = g.mem_alloc(256 * MIB)?;
        let (during, _) = g.mem_get_info()?;
        call!(g.mem_free(pointer))?;
        let (after, _) = g.mem_get_info()?;
        holds(during + 256 * MIB <= before, "not all of it was counted")?;
        same(after, before)?;
    }

    /// The host can't read it.
    dies fn the_host_can_not_read_it(g) {
        let pointer = g.mem_alloc(4 * KIB)?;
        // SAFETY: this process is here to die of it.
        unsafe { host::<u8>(pointer).read_volatile() };
    }

    /// The host can't write it.
    dies fn the_host_can_not_write_it(g) {
        let pointer = g.mem_alloc(4 * MIB)?;
        // SAFETY: this process is here to die of it.
        unsafe { host::<u8>(pointer + 4096).write_volatile(1) };
    }

    /// Freeing twice is refused.
    shared fn a_double_free_is_refused(g) {
        let pointer = g.mem_alloc(4 * KIB)?;
        call!(g.mem_free(pointer))?;
        refused(call!(g.mem_free(pointer)), code::INVALID_VALUE)?;
    }

    /// Freeing a pointer in its middle is refused, and frees nothing.
    shared fn freeing_the_middle_is_refused(g) {
        let pointer = g.mem_alloc(64 * KIB)?;
        refused(call!(g.mem_free(pointer + 4096)), code::INVALID_VALUE)?;
        call!(g.mem_free(pointer))?;
    }

    /// Freeing it as pinned memory is refused, and the right call still works.
    shared fn freeing_it_as_pinned_is_refused(g) {
        let pointer = g.mem_alloc(4 * KIB)?;
        refused(call!(g.mem_free_host(host(pointer))), code::INVALID_VALUE)?;
        call!(g.mem_free(pointer))?;
    }

    /// It can be freed where no context is current.
    shared fn is_freed_without_a_context(g) {
        let pointer = g.mem_alloc(4 * KIB)?;
        g.elsewhere(|g| Ok(call!(g.mem_free(pointer))?))?;
    }

    /// Its range is what was asked for.
    shared fn has_the_range_that_was_asked_for(g) {
        let pointer = g.mem_alloc(5000)?;
        let range = g.mem_get_address_range(pointer + 4999)?;
        call!(g.mem_free(pointer))?;
        same(range, (pointer, 5000))?;
    }

    /// An address that the driver doesn't know has no range.
    shared fn an_unknown_address_has_no_range(g) {
        let local = 0_u64;
        let address = (&raw const local).expose_provenance() as u64;
        refused(g.mem_get_address_range(address), cumem_sys::CUresult::CUDA_ERROR_NOT_FOUND)?;
    }

    /// Asking for a range needs a context.
    shared fn a_range_needs_a_context(g) {
        let pointer = g.mem_alloc(4 * KIB)?;
        let result = g.elsewhere(|g| Ok(g.mem_get_address_range(pointer)))?;
        call!(g.mem_free(pointer))?;
        refused(result, code::INVALID_CONTEXT)?;
    }

    /// Many threads allocate and free at once.
    shared fn threads_allocate_at_once(g) {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        call!(g.ctx_push_current(g.context()))?;
                        for bytes in 1..100 {
                            let pointer = g.mem_alloc(bytes * 100)?;
                            call!(g.mem_free(pointer))?;
                        }
                        Ok(())
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|_| holds(false, "panicked"))
            })
        })?;
    }
}
