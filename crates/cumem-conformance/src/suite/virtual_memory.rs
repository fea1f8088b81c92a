//! Virtual memory.

use core::ffi::{c_int, c_void};
use core::mem;

use cumem_sys::{
    CUmemAccess_flags as Access, CUmemAccessDesc, CUmemAllocationGranularity_flags as Granularity,
    CUmemAllocationHandleType as Shared, CUmemAllocationProp, CUmemAllocationType, CUmemLocation,
    CUmemLocationType,
};

use super::{MIB, code};
use crate::behaviour::{Check, behaviours, call, holds, refused, same};
use crate::ground::{Ground, host};

fn properties(g: &Ground<'_>) -> CUmemAllocationProp {
    // SAFETY: all bytes zero are valid for that structure of integers and a pointer.
    let mut properties: CUmemAllocationProp = unsafe { mem::zeroed() };
    properties.type_ = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = CUmemLocation::device(g.device());
    properties
}

fn granularity(g: &Ground<'_>) -> Check<usize> {
    let option = Granularity::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    Ok(g.mem_get_allocation_granularity(&properties(g), option)?)
}

fn access(g: &Ground<'_>, flags: Access) -> CUmemAccessDesc {
    CUmemAccessDesc {
        location: CUmemLocation::device(g.device()),
        flags,
    }
}

const BOTH: Access = Access::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

/// A reserved range and physical memory of one granule, given back at the end.
fn with_granule(g: &Ground<'_>, check: impl FnOnce(u64, u64, usize) -> Check) -> Check {
    let bytes = granularity(g)?;
    let pointer = g.mem_address_reserve(2 * bytes, 0, 0)?;
    let handle = g.mem_create(bytes, &properties(g))?;
    let result = check(pointer, handle, bytes);
    call!(g.mem_release(handle))?;
    call!(g.mem_address_free(pointer, 2 * bytes))?;
    result
}

/// The same, mapped and open to the device.
fn with_mapping(g: &Ground<'_>, check: impl FnOnce(u64, u64, usize) -> Check) -> Check {
    with_granule(g, |pointer, handle, bytes| {
        call!(g.mem_map(pointer, bytes, 0, handle))?;
        call!(g.mem_set_access(pointer, bytes, &[access(g, BOTH)]))?;
        let result = check(pointer, handle, bytes);
        call!(g.mem_unmap(pointer, bytes))?;
        result
    })
}

fn round_trip(g: &Ground<'_>, pointer: u64) -> Check {
    let bytes: Vec<u8> = (0..100).collect();
    let mut back = vec![0_u8; 100];
    call!(g.memcpy_htod(pointer, bytes.as_ptr().cast(), 100))?;
    call!(g.memcpy_dtoh(back.as_mut_ptr().cast(), pointer, 100))?;
    same(back, bytes)
}

behaviours! {
    area "virtual_memory";

    /// Device memory is mapped in steps of 2 MiB.
    shared fn the_granularity_is_2_mib(g) {
        same(granularity(g)?, 2 * MIB)?;
    }

    /// Properties without a type are refused.
    shared fn incomplete_properties_are_refused(g) {
        let mut empty = properties(g);
        empty.type_ = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_INVALID;
        refused(g.mem_create(2 * MIB, &empty), code::INVALID_VALUE)?;
    }

    /// Addresses are reserved, and given back.
    shared fn addresses_are_reserved(g) {
        let bytes = granularity(g)?;
        let pointer = g.mem_address_reserve(bytes, 0, 0)?;
        same(pointer % bytes as u64, 0)?;
        call!(g.mem_address_free(pointer, bytes))?;
    }

    /// No addresses at all is refused.
    shared fn reserving_nothing_is_refused(g) {
        refused(g.mem_address_reserve(0, 0, 0), code::INVALID_VALUE)?;
    }

    /// A reservation is a multiple of the granularity.
    shared fn an_odd_reservation_is_refused(g) {
        refused(g.mem_address_reserve(2 * MIB + 1, 0, 0), code::INVALID_VALUE)?;
    }

    /// An alignment is kept.
    shared fn an_alignment_is_kept(g) {
        let pointer = g.mem_address_reserve(2 * MIB, 64 * MIB, 0)?;
        call!(g.mem_address_free(pointer, 2 * MIB))?;
        same(pointer % (64 * MIB) as u64, 0)?;
    }

    /// An alignment that is no power of two is refused.
    shared fn an_odd_alignment_is_refused(g) {
        refused(g.mem_address_reserve(2 * MIB, 3 * MIB, 0), code::INVALID_VALUE)?;
    }

    /// A reservation is given back as a whole.
    shared fn half_a_reservation_is_not_given_back(g) {
        let pointer = g.mem_address_reserve(4 * MIB, 0, 0)?;
        let half = call!(g.mem_address_free(pointer, 2 * MIB));
        call!(g.mem_address_free(pointer, 4 * MIB))?;
        refused(half, code::INVALID_VALUE)?;
    }

    /// Physical memory is a multiple of the granularity.
    shared fn odd_physical_memory_is_refused(g) {
        refused(g.mem_create(MIB, &properties(g)), code::INVALID_VALUE)?;
        refused(g.mem_create(0, &properties(g)), code::INVALID_VALUE)?;
    }

    /// Physical memory of a device that isn't there is refused.
    shared fn physical_memory_has_a_device(g) {
        let mut nowhere = properties(g);
        nowhere.location = CUmemLocation::device(1000);
        refused(g.mem_create(2 * MIB, &nowhere), code::INVALID_DEVICE)?;
    }

    /// More than any machine has is out of memory.
    shared fn too_much_is_out_of_memory(g) {
        refused(g.mem_create(super::TOO_MUCH, &properties(g)), code::OUT_OF_MEMORY)?;
    }

    /// Physical memory is counted until it is released.
    shared fn physical_memory_is_counted(g) {
        let (before, _) = g.mem_get_info()?;
        let handle = g.mem_create(64 * MIB, &properties(g))?;
        let (during, _) = g.mem_get_info()?;
        call!(g.mem_release(handle))?;
        let (after, _) = g.mem_get_info()?;
        holds(during + 64 * MIB <= before, "not all of it was counted")?;
        same(after, before)?;
    }

    /// What goes to a mapping comes back.
    shared fn a_mapping_holds_bytes(g) {
        with_mapping(g, |pointer, _, _| round_trip(g, pointer))?;
    }

    /// The host can't touch a mapping of device memory.
    dies fn the_host_can_not_touch_a_mapping(g) {
        with_mapping(g, |pointer, _, _| {
            // SAFETY: this process is here to die of it.
            unsafe { host::<u8>(pointer).write_volatile(1) };
            Ok(())
        })?;
    }

    /// A mapping can't be used before access is set.
    shared fn a_mapping_needs_access(g) {
        with_granule(g, |pointer, handle, bytes| {
            call!(g.mem_map(pointer, bytes, 0, handle))?;
            let byte = 1_u8;
            let result = call!(g.memcpy_htod(pointer, (&raw const byte).cast(), 1));
            call!(g.mem_unmap(pointer, bytes))?;
            refused(result, code::INVALID_VALUE)
        })?;
    }

    /// Addresses that aren't mapped can't be used.
    shared fn bare_addresses_are_refused(g) {
        let pointer = g.mem_address_reserve(2 * MIB, 0, 0)?;
        let byte = 1_u8;
        let result = call!(g.memcpy_htod(pointer, (&raw const byte).cast(), 1));
        call!(g.mem_address_free(pointer, 2 * MIB))?;
        refused(result, code::INVALID_VALUE)?;
    }

    /// Access is set on what is mapped only.
    shared fn access_needs_a_mapping(g) {
        with_granule(g, |pointer, _, bytes| {
            let result = call!(g.mem_set_access(pointer, bytes, &[access(g, BOTH)]));
            refused(result, code::INVALID_VALUE)
        })?;
    }

    /// What access a device has can be asked.
    shared fn access_can_be_asked(g) {
        with_granule(g, |pointer, handle, bytes| {
            let here = CUmemLocation::device(g.device());
            call!(g.mem_map(pointer, bytes, 0, handle))?;
            let before = g.mem_get_access(&here, pointer)?;
            call!(g.mem_set_access(pointer, bytes, &[access(g, BOTH)]))?;
            let after = g.mem_get_access(&here, pointer)?;
            call!(g.mem_unmap(pointer, bytes))?;
            same((before, after), (Access::CU_MEM_ACCESS_FLAGS_PROT_NONE, BOTH))
        })?;
    }

    /// What isn't reserved isn't mapped.
    shared fn mapping_outside_is_refused(g) {
        with_granule(g, |pointer, handle, bytes| {
            let outside = pointer + 2 * bytes as u64;
            let result = call!(g.mem_map(outside, bytes, 0, handle));
            if result.is_ok() {
                call!(g.mem_unmap(outside, bytes))?;
            }
            refused(result, code::INVALID_VALUE)
        })?;
    }

    /// What is mapped isn't mapped again.
    shared fn mapping_twice_is_refused(g) {
        with_granule(g, |pointer, handle, bytes| {
            call!(g.mem_map(pointer, bytes, 0, handle))?;
            let again = call!(g.mem_map(pointer, bytes, 0, handle));
            call!(g.mem_unmap(pointer, bytes))?;
            refused(again, code::INVALID_VALUE)
        })?;
    }

    /// Unmapping reserved addresses where nothing is mapped does nothing, successfully.
    shared fn unmapping_nothing_is_allowed(g) {
        with_granule(g, |pointer, _, bytes| {
            Ok(call!(g.mem_unmap(pointer, bytes))?)
        })?;
    }

    /// Unmapping what isn't reserved is refused.
    shared fn unmapping_the_unreserved_is_refused(g) {
        let bytes = granularity(g)?;
        let pointer = g.mem_address_reserve(bytes, 0, 0)?;
        call!(g.mem_address_free(pointer, bytes))?;
        refused(call!(g.mem_unmap(pointer, bytes)), code::INVALID_VALUE)?;
    }

    /// Half a mapping isn't unmapped.
    shared fn half_a_mapping_is_not_unmapped(g) {
        let bytes = 2 * granularity(g)?;
        let pointer = g.mem_address_reserve(bytes, 0, 0)?;
        let handle = g.mem_create(bytes, &properties(g))?;
        call!(g.mem_map(pointer, bytes, 0, handle))?;
        let half = call!(g.mem_unmap(pointer, bytes / 2));
        let whole = call!(g.mem_unmap(pointer, bytes));
        call!(g.mem_release(handle))?;
        call!(g.mem_address_free(pointer, bytes))?;
        whole?;
        refused(half, code::INVALID_VALUE)?;
    }

    /// A reservation with something mapped in it isn't given back.
    shared fn a_mapped_reservation_is_not_given_back(g) {
        with_mapping(g, |pointer, _, bytes| {
            refused(call!(g.mem_address_free(pointer, 2 * bytes)), code::INVALID_VALUE)
        })?;
    }

    /// A mapping keeps its memory after the handle is released.
    shared fn a_mapping_outlives_its_handle(g) {
        let bytes = granularity(g)?;
        let pointer = g.mem_address_reserve(bytes, 0, 0)?;
        let handle = g.mem_create(bytes, &properties(g))?;
        call!(g.mem_map(pointer, bytes, 0, handle))?;
        call!(g.mem_release(handle))?;
        call!(g.mem_set_access(pointer, bytes, &[access(g, BOTH)]))?;
        let result = round_trip(g, pointer);
        call!(g.mem_unmap(pointer, bytes))?;
        call!(g.mem_address_free(pointer, bytes))?;
        result?;
    }

    /// A handle keeps its memory after it was unmapped.
    shared fn a_handle_outlives_its_mapping(g) {
        with_granule(g, |pointer, handle, bytes| {
            for _ in 0..2 {
                call!(g.mem_map(pointer, bytes, 0, handle))?;
                call!(g.mem_set_access(pointer, bytes, &[access(g, BOTH)]))?;
                let result = round_trip(g, pointer);
                call!(g.mem_unmap(pointer, bytes))?;
                result?;
            }
            Ok(())
        })?;
    }

    /// Copies and sets go over mappings that touch.
    shared fn copies_go_over_several_mappings(g) {
        with_mapping(g, |pointer, _, bytes| {
            let second = pointer + bytes as u64;
            let other = g.mem_create(bytes, &properties(g))?;
            call!(g.mem_map(second, bytes, 0, other))?;
            call!(g.mem_set_access(second, bytes, &[access(g, BOTH)]))?;
            let result = (|| {
                call!(g.memset_d8(pointer, 1, 2 * bytes))?;
                let own: Vec<u8> = (0..100).collect();
                call!(g.memcpy_htod(second - 50, own.as_ptr().cast(), 100))?;
                let mut back = vec![0_u8; 102];
                call!(g.memcpy_dtoh(back.as_mut_ptr().cast(), second - 51, 102))?;
                same((back[0], back[101]), (1, 1))?;
                same(back[1..101].to_vec(), own)
            })();
            call!(g.mem_unmap(second, bytes))?;
            call!(g.mem_release(other))?;
            result
        })?;
    }

    /// The same memory is seen at two addresses.
    shared fn memory_is_seen_at_two_addresses(g) {
        with_mapping(g, |pointer, handle, bytes| {
            let second = pointer + bytes as u64;
            call!(g.mem_map(second, bytes, 0, handle))?;
            call!(g.mem_set_access(second, bytes, &[access(g, BOTH)]))?;
            call!(g.memset_d8(pointer, 0x77, 100))?;
            let mut back = [0_u8; 100];
            let result = call!(g.memcpy_dtoh(back.as_mut_ptr().cast(), second, 100));
            call!(g.mem_unmap(second, bytes))?;
            result?;
            same(back, [0x77; 100])
        })?;
    }

    /// Unmapping needs no context.
    shared fn is_unmapped_without_a_context(g) {
        with_granule(g, |pointer, handle, bytes| {
            call!(g.mem_map(pointer, bytes, 0, handle))?;
            let result = g.elsewhere(|g| Ok(call!(g.mem_unmap(pointer, bytes))))?;
            if result.is_err() {
                call!(g.mem_unmap(pointer, bytes))?;
            }
            Ok(result?)
        })?;
    }

    /// Neither do the other calls.
    shared fn needs_no_context(g) {
        g.elsewhere(|g| {
            let bytes = granularity(g)?;
            let pointer = g.mem_address_reserve(bytes, 0, 0)?;
            let handle = g.mem_create(bytes, &properties(g))?;
            call!(g.mem_map(pointer, bytes, 0, handle))?;
            call!(g.mem_set_access(pointer, bytes, &[access(g, BOTH)]))?;
            call!(g.mem_unmap(pointer, bytes))?;
            call!(g.mem_release(handle))?;
            Ok(call!(g.mem_address_free(pointer, bytes))?)
        })?;
    }

    /// The handle of a mapping can be had from its address, as a further reference.
    shared fn the_handle_can_be_had_again(g) {
        with_mapping(g, |pointer, handle, bytes| {
            let again = g.mem_retain_allocation_handle(pointer + bytes as u64 / 2)?;
            call!(g.mem_release(again))?;
            g.note(format!("the same handle: {}", again == handle));
            round_trip(g, pointer)
        })?;
    }

    /// Memory that isn't mapped has no handle.
    shared fn other_memory_has_no_handle(g) {
        let pointer = g.mem_alloc(2 * MIB)?;
        let result = g.mem_retain_allocation_handle(pointer);
        call!(g.mem_free(pointer))?;
        refused(result, code::INVALID_VALUE)?;
    }

    /// A handle knows its properties.
    shared fn a_handle_knows_its_properties(g) {
        with_granule(g, |_, handle, _| {
            let found = call!(g.mem_get_allocation_properties_from_handle(handle))?;
            same(found.type_, CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED)?;
            same(found.location.type_, CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE)?;
            same(found.location.ordinal(), g.device())
        })?;
    }

    /// A mapping isn't freed as memory is.
    shared fn a_mapping_is_not_freed(g) {
        with_mapping(g, |pointer, _, _| {
            refused(call!(g.mem_free(pointer)), code::INVALID_VALUE)
        })?;
    }

    /// A handle that wasn't made for it isn't exported.
    shared fn an_unshared_handle_is_not_exported(g) {
        with_granule(g, |_, handle, _| {
            let mut file: c_int = -1;
            let kind = Shared::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
            let data = (&raw mut file).cast();
            let result = call!(g.mem_export_to_shareable_handle(data, handle, kind));
            refused(result, code::INVALID_VALUE)
        })?;
    }

    /// An exported handle, imported again, is the same memory.
    shared fn an_exported_handle_is_the_same_memory(g) {
        let bytes = granularity(g)?;
        let kind = Shared::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        let mut shared = properties(g);
        shared.requestedHandleTypes = kind;
        let handle = g.mem_create(bytes, &shared)?;
        let mut file: c_int = -1;
        call!(g.mem_export_to_shareable_handle((&raw mut file).cast(), handle, kind))?;
        let data: *mut c_void = core::ptr::without_provenance_mut(file as usize);
        let imported = call!(g.mem_import_from_shareable_handle(data, kind))?;
        // SAFETY: the descriptor is ours, and the driver has made its own of it.
        unsafe { libc::close(file) };
        let pointer = g.mem_address_reserve(2 * bytes, 0, 0)?;
        let second = pointer + bytes as u64;
        call!(g.mem_map(pointer, bytes, 0, handle))?;
        call!(g.mem_map(second, bytes, 0, imported))?;
        call!(g.mem_set_access(pointer, 2 * bytes, &[access(g, BOTH)]))?;
        call!(g.memset_d8(pointer, 0x31, 100))?;
        let mut back = [0_u8; 100];
        call!(g.memcpy_dtoh(back.as_mut_ptr().cast(), second, 100))?;
        call!(g.mem_unmap(pointer, 2 * bytes))?;
        call!(g.mem_release(handle))?;
        call!(g.mem_release(imported))?;
        call!(g.mem_address_free(pointer, 2 * bytes))?;
        same(back, [0x31; 100])?;
    }

    /// Physical memory outlives the context.
    alone fn physical_memory_outlives_the_context(g) {
        let context = g.ctx_create(cumem_sys::CUctx_flags::CU_CTX_SCHED_AUTO, g.device())?;
        let bytes = granularity(g)?;
        let handle = g.mem_create(bytes, &properties(g))?;
        call!(g.ctx_destroy(context))?;
        call!(g.mem_release(handle))?;
    }
}
