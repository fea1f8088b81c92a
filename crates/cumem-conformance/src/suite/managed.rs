//! Managed memory.

use core::ptr;
use std::collections::BTreeSet;

use cumem_sys::CUmemAttach_flags as F;

use super::{KIB, MIB, TOO_MUCH, code};
use crate::behaviour::{behaviours, call, holds, refused, same};
use crate::ground::host;

behaviours! {
    area "managed";

    /// Size 0 is refused.
    shared fn size_0_is_refused(g) {
        refused(g.mem_alloc_managed(0, F::CU_MEM_ATTACH_GLOBAL), code::INVALID_VALUE)?;
    }

    /// It must be attached globally or to the host.
    shared fn other_attachments_are_refused(g) {
        refused(g.mem_alloc_managed(256, F(0)), code::INVALID_VALUE)?;
        refused(g.mem_alloc_managed(256, F(8)), code::INVALID_VALUE)?;
    }

    /// It can't be attached to a stream before it exists.
    shared fn attachment_to_a_stream_is_refused(g) {
        refused(g.mem_alloc_managed(256, F::CU_MEM_ATTACH_SINGLE), code::INVALID_VALUE)?;
    }

    /// It can be attached to the host.
    shared fn can_be_attached_to_the_host(g) {
        let pointer = g.mem_alloc_managed(256, F::CU_MEM_ATTACH_HOST)?;
        call!(g.mem_free(pointer))?;
    }

    /// More than any machine has is out of memory.
    shared fn too_much_is_out_of_memory(g) {
        let flags = F::CU_MEM_ATTACH_GLOBAL;
        refused(g.mem_alloc_managed(TOO_MUCH, flags), code::OUT_OF_MEMORY)?;
    }

    /// So is all of the address space.
    shared fn the_largest_size_is_out_of_memory(g) {
        let flags = F::CU_MEM_ATTACH_GLOBAL;
        refused(g.mem_alloc_managed(usize::MAX, flags), code::OUT_OF_MEMORY)?;
    }

    /// The host can write and read it.
    shared fn the_host_can_use_it(g) {
        let pointer = g.managed(4 * KIB)?;
        let bytes: *mut u8 = host(pointer);
        // SAFETY: the memory is live, and only this uses it.
        unsafe {
            bytes.write_bytes(0x5a, 4 * KIB);
            same(bytes.add(4 * KIB - 1).read(), 0x5a)?;
        }
        call!(g.mem_free(pointer))?;
    }

    /// What the host wrote is what the device copies.
    shared fn the_device_sees_what_the_host_wrote(g) {
        let pointer = g.managed(KIB)?;
        // SAFETY: the memory is live, and only this uses it.
        unsafe { host::<u8>(pointer).write_bytes(7, KIB) };
        let mut copy = [0_u8; KIB];
        call!(g.memcpy_dtoh(copy.as_mut_ptr().cast(), pointer, KIB))?;
        same(copy, [7; KIB])?;
        call!(g.mem_free(pointer))?;
    }

    /// It is aligned to 512 bytes and more.
    shared fn is_aligned_to_512(g) {
        for bytes in [1, 100, 513, 5000, 100_000] {
            let pointer = g.managed(bytes)?;
            same(pointer % 512, 0)?;
            call!(g.mem_free(pointer))?;
        }
    }

    /// 1 MiB and more is aligned to 1 MiB.
    shared fn large_blocks_are_aligned_to_1_mib(g) {
        let blocks = [g.managed(MIB)?, g.managed(2 * MIB)?, g.managed(8 * MIB)?];
        for pointer in blocks {
            call!(g.mem_free(pointer))?;
            same(pointer % MIB as u64, 0)?;
        }
    }

    /// Live blocks don't overlap.
    shared fn live_blocks_are_apart(g) {
        let mut blocks = Vec::new();
        for _ in 0..100 {
            blocks.push(g.managed(KIB)?);
        }
        let sorted: BTreeSet<u64> = blocks.iter().copied().collect();
        same(sorted.len(), blocks.len())?;
        let mut last = 0;
        for &pointer in &sorted {
            holds(pointer >= last, "two blocks overlap")?;
            last = pointer + KIB as u64;
        }
        for pointer in blocks {
            call!(g.mem_free(pointer))?;
        }
    }

    /// Freeing null does nothing, successfully.
    shared fn null_is_freed(g) {
        call!(g.mem_free(0))?;
    }

    /// Freeing twice is refused.
    shared fn a_double_free_is_refused(g) {
        let pointer = g.managed(4 * KIB)?;
        call!(g.mem_free(pointer))?;
        refused(call!(g.mem_free(pointer)), code::INVALID_VALUE)?;
    }

    /// Freeing a pointer in its middle is refused, and frees nothing.
    shared fn freeing_the_middle_is_refused(g) {
        let pointer = g.managed(4 * KIB)?;
        refused(call!(g.mem_free(pointer + 512)), code::INVALID_VALUE)?;
        call!(g.mem_free(pointer))?;
    }

    /// Freeing a pointer into the stack is refused.
    shared fn freeing_the_stack_is_refused(g) {
        let local = 0_u64;
        let address = (&raw const local).expose_provenance() as u64;
        refused(call!(g.mem_free(address)), code::INVALID_VALUE)?;
    }

    /// Freeing it as pinned memory is refused, and the right call still works.
    shared fn freeing_it_as_pinned_is_refused(g) {
        let pointer = g.managed(4 * KIB)?;
        refused(call!(g.mem_free_host(host(pointer))), code::INVALID_VALUE)?;
        call!(g.mem_free(pointer))?;
    }

    /// It can be freed where no context is current.
    shared fn is_freed_without_a_context(g) {
        let pointer = g.managed(4 * KIB)?;
        g.elsewhere(|g| Ok(call!(g.mem_free(pointer))?))?;
        refused(call!(g.mem_free(pointer)), code::INVALID_VALUE)?;
    }

    /// Its range is what was asked for.
    shared fn has_the_range_that_was_asked_for(g) {
        let pointer = g.managed(5000)?;
        let range = g.mem_get_address_range(pointer + 1234)?;
        call!(g.mem_free(pointer))?;
        same(range, (pointer, 5000))?;
    }

    /// It is not taken from the device before it is used there.
    shared fn takes_nothing_from_the_device_at_first(g) {
        let (before, _) = g.mem_get_info()?;
        let pointer = g.managed(64 * MIB)?;
        let (after, _) = g.mem_get_info()?;
        call!(g.mem_free(pointer))?;
        holds(before - after.min(before) < 32 * MIB, "taken at once")?;
    }

    /// It can be attached to a stream.
    shared fn can_be_attached_to_a_stream(g) {
        let pointer = g.managed(4 * KIB)?;
        let stream = g.stream_create(cumem_sys::CUstream_flags::CU_STREAM_DEFAULT)?;
        let single = F::CU_MEM_ATTACH_SINGLE;
        call!(g.stream_attach_mem_async(stream, pointer, 0, single))?;
        call!(g.stream_synchronize(stream))?;
        call!(g.stream_destroy(stream))?;
        call!(g.mem_free(pointer))?;
    }

    /// Only whole blocks of it can be attached.
    shared fn only_the_whole_is_attached(g) {
        let pointer = g.managed(64 * KIB)?;
        let host = F::CU_MEM_ATTACH_HOST;
        let part = call!(g.stream_attach_mem_async(ptr::null_mut(), pointer, KIB, host));
        call!(g.mem_free(pointer))?;
        refused(part, code::INVALID_VALUE)?;
    }
}
