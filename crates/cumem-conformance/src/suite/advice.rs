//! Advice on managed memory, and prefetching.

use core::ptr;

use cumem_sys::{
    CUdevice, CUmem_advise as A, CUmem_range_attribute as R, CUmemLocation, CUmemLocationType,
};

use super::{KIB, MIB, code};
use crate::behaviour::{Check, behaviours, call, refused, same};
use crate::ground::Ground;

const HOST: i32 = -1;
const NOWHERE: i32 = -2;

/// Managed memory for one check, freed at its end.
fn with_managed(g: &Ground<'_>, bytes: usize, check: impl FnOnce(u64) -> Check) -> Check {
    let pointer = g.managed(bytes)?;
    let result = check(pointer);
    g.ctx_synchronize()?;
    call!(g.mem_free(pointer))?;
    result
}

behaviours! {
    area "advice";

    /// Read-mostly is remembered, and taken back.
    shared fn read_mostly_is_remembered(g) {
        with_managed(g, 64 * KIB, |pointer| {
            let host = CUmemLocation::host();
            let get = || g.mem_range_get_attribute(
                R::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, pointer, 64 * KIB,
            );
            same(get()?, 0)?;
            g.mem_advise(pointer, 64 * KIB, A::CU_MEM_ADVISE_SET_READ_MOSTLY, host)?;
            same(get()?, 1)?;
            g.mem_advise(pointer, 64 * KIB, A::CU_MEM_ADVISE_UNSET_READ_MOSTLY, host)?;
            same(get()?, 0)
        })?;
    }

    /// The preferred location is nowhere, then what was said, then nowhere again.
    shared fn the_preferred_location_is_remembered(g) {
        with_managed(g, 64 * KIB, |pointer| {
            let get = || g.mem_range_get_attribute(
                R::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, pointer, 64 * KIB,
            );
            let device = CUmemLocation::device(g.device());
            same(get()?, NOWHERE)?;
            g.mem_advise(pointer, 64 * KIB, A::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device)?;
            same(get()?, g.device())?;
            let host = CUmemLocation::host();
            g.mem_advise(pointer, 64 * KIB, A::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host)?;
            same(get()?, HOST)?;
            g.mem_advise(pointer, 64 * KIB, A::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, host)?;
            same(get()?, NOWHERE)
        })?;
    }

    /// The preferred location can be asked for by type and number.
    shared fn the_preferred_location_has_a_type(g) {
        with_managed(g, 64 * KIB, |pointer| {
            let kind = R::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE;
            let id = R::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID;
            let none = g.mem_range_get_attribute(kind, pointer, 64 * KIB)?;
            let device = CUmemLocation::device(g.device());
            g.mem_advise(pointer, 64 * KIB, A::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device)?;
            let found = (
                none as u32,
                g.mem_range_get_attribute(kind, pointer, 64 * KIB)? as u32,
                g.mem_range_get_attribute(id, pointer, 64 * KIB)?,
            );
            same(found, (
                CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID.0,
                CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE.0,
                g.device(),
            ))
        })?;
    }

    /// Who accesses it is remembered, and taken back.
    shared fn accessors_are_remembered(g) {
        with_managed(g, 64 * KIB, |pointer| {
            let get = || -> Check<[CUdevice; 2]> {
                let mut devices = [7; 2];
                g.mem_range_get_accessed_by(pointer, 64 * KIB, &mut devices)?;
                Ok(devices)
            };
            let device = CUmemLocation::device(g.device());
            same(get()?, [NOWHERE; 2])?;
            g.mem_advise(pointer, 64 * KIB, A::CU_MEM_ADVISE_SET_ACCESSED_BY, device)?;
            same(get()?, [g.device(), NOWHERE])?;
            g.mem_advise(pointer, 64 * KIB, A::CU_MEM_ADVISE_UNSET_ACCESSED_BY, device)?;
            same(get()?, [NOWHERE; 2])
        })?;
    }

    /// Where it was prefetched to last is remembered.
    shared fn the_last_prefetch_is_remembered(g) {
        with_managed(g, 64 * KIB, |pointer| {
            let get = || g.mem_range_get_attribute(
                R::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, pointer, 64 * KIB,
            );
            let stream = ptr::null_mut();
            same(get()?, NOWHERE)?;
            let device = CUmemLocation::device(g.device());
            call!(g.mem_prefetch_async(pointer, 64 * KIB, device, stream))?;
            g.ctx_synchronize()?;
            same(get()?, g.device())?;
            call!(g.mem_prefetch_async(pointer, 64 * KIB, CUmemLocation::host(), stream))?;
            g.ctx_synchronize()?;
            same(get()?, HOST)
        })?;
    }

    /// Prefetching keeps the bytes.
    shared fn a_prefetch_keeps_the_bytes(g) {
        with_managed(g, 64 * KIB, |pointer| {
            let bytes: *mut u8 = crate::ground::host(pointer);
            // SAFETY: the memory is live, and only this uses it.
            unsafe { bytes.write_bytes(9, 64 * KIB) };
            let device = CUmemLocation::device(g.device());
            call!(g.mem_prefetch_async(pointer, 64 * KIB, device, ptr::null_mut()))?;
            g.ctx_synchronize()?;
            // SAFETY: as above, and the device is done with it.
            same(unsafe { bytes.add(64 * KIB - 1).read() }, 9)
        })?;
    }

    /// Advice on a part is no advice on the whole.
    shared fn a_part_is_not_the_whole(g) {
        with_managed(g, 4 * MIB, |pointer| {
            let host = CUmemLocation::host();
            g.mem_advise(pointer, 2 * MIB, A::CU_MEM_ADVISE_SET_READ_MOSTLY, host)?;
            let device = CUmemLocation::device(g.device());
            g.mem_advise(pointer, 2 * MIB, A::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device)?;
            let mostly = R::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
            let preferred = R::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION;
            let later = pointer + 2 * MIB as u64;
            same(g.mem_range_get_attribute(mostly, pointer, 2 * MIB)?, 1)?;
            same(g.mem_range_get_attribute(mostly, later, 2 * MIB)?, 0)?;
            same(g.mem_range_get_attribute(mostly, pointer, 4 * MIB)?, 0)?;
            same(g.mem_range_get_attribute(preferred, pointer, 2 * MIB)?, g.device())?;
            same(g.mem_range_get_attribute(preferred, pointer, 4 * MIB)?, NOWHERE)
        })?;
    }

    /// Advice on nothing is refused.
    shared fn size_0_is_refused(g) {
        with_managed(g, 64 * KIB, |pointer| {
            let host = CUmemLocation::host();
            let advice = A::CU_MEM_ADVISE_SET_READ_MOSTLY;
            refused(g.mem_advise(pointer, 0, advice, host), code::INVALID_VALUE)
        })?;
    }

    /// A prefetch of nothing is refused.
    shared fn a_prefetch_of_nothing_is_refused(g) {
        with_managed(g, 64 * KIB, |pointer| {
            let device = CUmemLocation::device(g.device());
            let result = call!(g.mem_prefetch_async(pointer, 0, device, ptr::null_mut()));
            refused(result, code::INVALID_VALUE)
        })?;
    }

    /// Advice beyond the end is refused.
    shared fn beyond_the_end_is_refused(g) {
        with_managed(g, 2 * MIB, |pointer| {
            let host = CUmemLocation::host();
            let advice = A::CU_MEM_ADVISE_SET_READ_MOSTLY;
            refused(g.mem_advise(pointer, 64 * MIB, advice, host), code::INVALID_VALUE)
        })?;
    }

    /// Advice on memory that isn't managed is refused.
    shared fn memory_that_is_not_managed_is_refused(g) {
        let pointer = g.mem_alloc(64 * KIB)?;
        let host = CUmemLocation::host();
        let device = CUmemLocation::device(g.device());
        let advised = g.mem_advise(pointer, 64 * KIB, A::CU_MEM_ADVISE_SET_READ_MOSTLY, host);
        let fetched = call!(g.mem_prefetch_async(pointer, 64 * KIB, device, ptr::null_mut()));
        call!(g.mem_free(pointer))?;
        refused(advised, code::INVALID_VALUE)?;
        refused(fetched, code::INVALID_VALUE)?;
    }

    /// Advice about a device that isn't there is refused.
    shared fn no_device_is_refused(g) {
        with_managed(g, 64 * KIB, |pointer| {
            let nowhere = CUmemLocation::device(1000);
            let advice = A::CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
            refused(g.mem_advise(pointer, 64 * KIB, advice, nowhere), code::INVALID_VALUE)
        })?;
    }

    /// Prefetching to a device that isn't there is refused.
    shared fn a_prefetch_to_no_device_is_refused(g) {
        with_managed(g, 64 * KIB, |pointer| {
            let nowhere = CUmemLocation::device(1000);
            let result = call!(g.mem_prefetch_async(pointer, 64 * KIB, nowhere, ptr::null_mut()));
            refused(result, code::INVALID_DEVICE)
        })?;
    }

    /// A number that is no advice is refused.
    shared fn unknown_advice_is_refused(g) {
        with_managed(g, 64 * KIB, |pointer| {
            let host = CUmemLocation::host();
            refused(g.mem_advise(pointer, 64 * KIB, A(100), host), code::INVALID_VALUE)
        })?;
    }

    /// Advice needs a context.
    shared fn needs_a_context(g) {
        with_managed(g, 64 * KIB, |pointer| {
            g.elsewhere(|g| {
                let host = CUmemLocation::host();
                let advice = A::CU_MEM_ADVISE_SET_READ_MOSTLY;
                refused(g.mem_advise(pointer, 64 * KIB, advice, host), code::INVALID_CONTEXT)
            })
        })?;
    }

    /// Range attributes need a context.
    shared fn attributes_need_a_context(g) {
        with_managed(g, 64 * KIB, |pointer| {
            g.elsewhere(|g| {
                let which = R::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
                let result = g.mem_range_get_attribute(which, pointer, 64 * KIB);
                refused(result, code::INVALID_CONTEXT)
            })
        })?;
    }

    /// Prefetching in a stream that was made needs no context.
    shared fn a_prefetch_in_a_stream_needs_no_context(g) {
        with_managed(g, 64 * KIB, |pointer| {
            let flags = cumem_sys::CUstream_flags::CU_STREAM_NON_BLOCKING;
            let stream = crate::ground::number(g.stream_create(flags)?);
            let result = g.elsewhere(|g| {
                let device = CUmemLocation::device(g.device());
                let stream = crate::ground::host(stream);
                Ok(call!(g.mem_prefetch_async(pointer, 64 * KIB, device, stream)))
            })?;
            call!(g.stream_synchronize(crate::ground::host(stream)))?;
            call!(g.stream_destroy(crate::ground::host(stream)))?;
            Ok(result?)
        })?;
    }

    /// Several range attributes are answered at once.
    shared fn several_attributes_are_answered_at_once(g) {
        with_managed(g, 64 * KIB, |pointer| {
            let (mut mostly, mut preferred) = (7_i32, 7_i32);
            call!(g.mem_range_get_attributes(
                &mut [(&raw mut mostly).cast(), (&raw mut preferred).cast()],
                &mut [4, 4],
                &mut [
                    R::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
                    R::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
                ],
                pointer,
                64 * KIB,
            ))?;
            same((mostly, preferred), (0, NOWHERE))
        })?;
    }

    /// Range attributes of memory that isn't managed are refused.
    shared fn attributes_of_other_memory_are_refused(g) {
        let pointer = g.mem_alloc(64 * KIB)?;
        let which = R::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
        let result = g.mem_range_get_attribute(which, pointer, 64 * KIB);
        call!(g.mem_free(pointer))?;
        refused(result, code::INVALID_VALUE)?;
    }
}
