//! Copies and sets.

use core::ptr;

use super::{KIB, code};
use crate::behaviour::{Check, behaviours, call, refused, same};
use crate::ground::{Ground, host, number};

/// The bytes of memory that the device holds.
fn read(g: &Ground<'_>, pointer: u64, bytes: usize) -> Check<Vec<u8>> {
    let mut copy = vec![0; bytes];
    call!(g.memcpy_dtoh(copy.as_mut_ptr().cast(), pointer, bytes))?;
    Ok(copy)
}

fn counting(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| at as u8).collect()
}

behaviours! {
    area "copy";

    /// What goes to the device comes back.
    shared fn to_the_device_and_back(g) {
        let pointer = g.mem_alloc(10_000)?;
        let bytes = counting(10_000);
        call!(g.memcpy_htod(pointer, bytes.as_ptr().cast(), bytes.len()))?;
        same(read(g, pointer, 10_000)?, bytes)?;
        call!(g.mem_free(pointer))?;
    }

    /// A part in the middle can be copied.
    shared fn a_part_in_the_middle(g) {
        let pointer = g.mem_alloc(4 * KIB)?;
        call!(g.memset_d8(pointer, 1, 4 * KIB))?;
        let bytes = [9_u8; 10];
        call!(g.memcpy_htod(pointer + 1001, bytes.as_ptr().cast(), 10))?;
        let mut expected = vec![1; 4 * KIB];
        expected[1001..1011].fill(9);
        same(read(g, pointer, 4 * KIB)?, expected)?;
        call!(g.mem_free(pointer))?;
    }

    /// Within the device.
    shared fn within_the_device(g) {
        let (from, to) = (g.mem_alloc(4 * KIB)?, g.mem_alloc(4 * KIB)?);
        let bytes = counting(4 * KIB);
        call!(g.memcpy_htod(from, bytes.as_ptr().cast(), bytes.len()))?;
        call!(g.memcpy_dtod(to, from, bytes.len()))?;
        same(read(g, to, bytes.len())?, bytes)?;
        call!(g.mem_free(from))?;
        call!(g.mem_free(to))?;
    }

    /// By address alone, between any two kinds of memory.
    shared fn by_address_between_all_kinds(g) {
        let device = g.mem_alloc(KIB)?;
        let managed = g.managed(KIB)?;
        let pinned = g.mem_host_alloc(KIB, 0)?;
        let bytes = counting(KIB);
        let mut back = vec![0_u8; KIB];
        call!(g.memcpy(number(pinned), number(bytes.as_ptr()), KIB))?;
        call!(g.memcpy(device, number(pinned), KIB))?;
        call!(g.memcpy(managed, device, KIB))?;
        call!(g.memcpy(number(back.as_mut_ptr()), managed, KIB))?;
        same(back, bytes)?;
        call!(g.mem_free(device))?;
        call!(g.mem_free(managed))?;
        call!(g.mem_free_host(pinned))?;
    }

    /// By address alone, within the host's own memory.
    shared fn by_address_within_the_host(g) {
        let bytes = counting(KIB);
        let mut back = vec![0_u8; KIB];
        call!(g.memcpy(number(back.as_mut_ptr()), number(bytes.as_ptr()), KIB))?;
        same(back, bytes)?;
    }

    /// No bytes is allowed.
    shared fn no_bytes_is_allowed(g) {
        let pointer = g.mem_alloc(256)?;
        let byte = 0_u8;
        call!(g.memcpy_htod(pointer, (&raw const byte).cast(), 0))?;
        call!(g.memcpy_dtod(pointer, pointer, 0))?;
        call!(g.mem_free(pointer))?;
    }

    /// The device side can't be the program's own memory.
    shared fn own_memory_is_no_device_memory(g) {
        let mut local = [0_u8; 64];
        let bytes = [1_u8; 64];
        let to = number(local.as_mut_ptr());
        let from = bytes.as_ptr().cast();
        refused(call!(g.memcpy_htod(to, from, 64)), code::INVALID_VALUE)?;
        let back = local.as_mut_ptr().cast();
        refused(call!(g.memcpy_dtoh(back, number(bytes.as_ptr()), 64)), code::INVALID_VALUE)?;
    }

    /// Beyond the end of a large block is refused.
    shared fn beyond_the_end_is_refused(g) {
        let bytes = 4 << 20;
        let pointer = g.mem_alloc(bytes)?;
        let own = vec![0_u8; bytes + 1];
        let result = call!(g.memcpy_htod(pointer, own.as_ptr().cast(), bytes + 1));
        call!(g.mem_free(pointer))?;
        refused(result, code::INVALID_VALUE)?;
    }

    /// Freed memory is refused.
    shared fn freed_memory_is_refused(g) {
        let pointer = g.mem_alloc(4 << 20)?;
        call!(g.mem_free(pointer))?;
        let bytes = [0_u8; 64];
        let result = call!(g.memcpy_htod(pointer, bytes.as_ptr().cast(), 64));
        refused(result, code::INVALID_VALUE)?;
    }

    /// Null is refused.
    shared fn null_is_refused(g) {
        let bytes = [0_u8; 64];
        refused(call!(g.memcpy_htod(0, bytes.as_ptr().cast(), 64)), code::INVALID_VALUE)?;
    }

    /// A context must be current.
    shared fn needs_a_context(g) {
        let pointer = g.managed(KIB)?;
        g.elsewhere(|g| {
            let bytes = [0_u8; 64];
            let result = call!(g.memcpy_htod(pointer, bytes.as_ptr().cast(), 64));
            refused(result, code::INVALID_CONTEXT)?;
            refused(call!(g.memset_d8(pointer, 0, 64)), code::INVALID_CONTEXT)
        })?;
        call!(g.mem_free(pointer))?;
    }

    /// In stream order, from and to pinned memory.
    shared fn in_stream_order(g) {
        let stream = g.stream_create(cumem_sys::CUstream_flags::CU_STREAM_NON_BLOCKING)?;
        let device = g.mem_alloc(4 * KIB)?;
        let pinned = g.mem_host_alloc(8 * KIB, 0)?;
        let second = pinned.wrapping_byte_add(4 * KIB);
        // SAFETY: the memory is live, and nothing else uses it yet.
        unsafe { pinned.cast::<u8>().write_bytes(3, 4 * KIB) };
        call!(g.memcpy_htod_async(device, pinned, 4 * KIB, stream))?;
        call!(g.memcpy_dtoh_async(second, device, 4 * KIB, stream))?;
        call!(g.stream_synchronize(stream))?;
        // SAFETY: the stream is done with it.
        same(unsafe { second.cast::<u8>().add(4095).read() }, 3)?;
        call!(g.stream_destroy(stream))?;
        call!(g.mem_free(device))?;
        call!(g.mem_free_host(pinned))?;
    }

    /// From pageable memory in stream order, the source can be reused at once.
    shared fn pageable_sources_are_staged(g) {
        let device = g.mem_alloc(4 * KIB)?;
        let mut own = counting(4 * KIB);
        call!(g.memcpy_htod_async(device, own.as_ptr().cast(), own.len(), ptr::null_mut()))?;
        own.fill(0);
        g.ctx_synchronize()?;
        same(read(g, device, 4 * KIB)?, counting(4 * KIB))?;
        call!(g.mem_free(device))?;
    }

    /// Sets of 8, 16 and 32 bits fill what they are told to.
    shared fn sets_fill(g) {
        let pointer = g.mem_alloc(KIB)?;
        call!(g.memset_d8(pointer, 0xab, KIB))?;
        same(read(g, pointer, KIB)?, vec![0xab; KIB])?;
        call!(g.memset_d16(pointer, 0x1234, KIB / 2))?;
        same(read(g, pointer, 4)?, vec![0x34, 0x12, 0x34, 0x12])?;
        call!(g.memset_d32(pointer + 4, 0x0102_0304, 1))?;
        same(read(g, pointer, 10)?, vec![0x34, 0x12, 0x34, 0x12, 4, 3, 2, 1, 0x34, 0x12])?;
        call!(g.mem_free(pointer))?;
    }

    /// Sets must be aligned to what they set.
    shared fn misaligned_sets_are_refused(g) {
        let pointer = g.mem_alloc(KIB)?;
        let (two, four) = (
            call!(g.memset_d16(pointer + 1, 0, 4)),
            call!(g.memset_d32(pointer + 2, 0, 4)),
        );
        call!(g.mem_free(pointer))?;
        refused(two, code::INVALID_VALUE)?;
        refused(four, code::INVALID_VALUE)?;
    }

    /// Setting nothing is allowed.
    shared fn setting_nothing_is_allowed(g) {
        let pointer = g.mem_alloc(KIB)?;
        call!(g.memset_d8(pointer, 1, 0))?;
        call!(g.mem_free(pointer))?;
    }

    /// The program's own memory can't be set.
    shared fn own_memory_is_not_set(g) {
        let mut local = [0_u8; 64];
        let to = number(local.as_mut_ptr());
        refused(call!(g.memset_d8(to, 1, 64)), code::INVALID_VALUE)?;
    }

    /// Managed and pinned memory can be set.
    shared fn host_visible_memory_is_set(g) {
        let managed = g.managed(KIB)?;
        let pinned = g.mem_host_alloc(KIB, 0)?;
        call!(g.memset_d8(managed, 5, KIB))?;
        call!(g.memset_d8(number(pinned), 6, KIB))?;
        g.ctx_synchronize()?;
        // SAFETY: both are live, and the device is done with them.
        unsafe {
            same(host::<u8>(managed).add(KIB - 1).read(), 5)?;
            same(pinned.cast::<u8>().add(KIB - 1).read(), 6)?;
        }
        call!(g.mem_free(managed))?;
        call!(g.mem_free_host(pinned))?;
    }

    /// Setting beyond the end of a large block is refused.
    shared fn setting_beyond_the_end_is_refused(g) {
        let pointer = g.mem_alloc(4 << 20)?;
        let result = call!(g.memset_d8(pointer, 0, (4 << 20) + 1));
        call!(g.mem_free(pointer))?;
        refused(result, code::INVALID_VALUE)?;
    }
}
