//! What the driver tells of a pointer.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr;

use cumem_sys::{CUcontext, CUmemoryPool, CUmemorytype, CUpointer_attribute as P};

use super::{KIB, code};
use crate::behaviour::{Check, behaviours, call, holds, refused, same};
use crate::ground::{Ground, number};

fn attribute<T: Copy>(g: &Ground<'_>, attribute: P, pointer: u64, empty: T) -> Check<T> {
    let mut value = empty;
    call!(g.pointer_get_attribute((&raw mut value).cast(), attribute, pointer))?;
    Ok(value)
}

/// The attributes that an unknown pointer leaves as they were.
const LEFT_ALONE: &[c_uint] = &[
    P::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR.0,
    P::CU_POINTER_ATTRIBUTE_RANGE_SIZE.0,
];

behaviours! {
    area "pointer";

    /// Device memory is of type device.
    shared fn device_memory_is_of_type_device(g) {
        let pointer = g.mem_alloc(KIB)?;
        let found = g.pointer_memory_type(pointer + 7)?;
        call!(g.mem_free(pointer))?;
        same(found, CUmemorytype::CU_MEMORYTYPE_DEVICE)?;
    }

    /// Managed memory is of type device as well, and managed.
    shared fn managed_memory_is_of_type_device(g) {
        let pointer = g.managed(KIB)?;
        let found = (g.pointer_memory_type(pointer)?, g.pointer_is_managed(pointer)?);
        call!(g.mem_free(pointer))?;
        same(found, (CUmemorytype::CU_MEMORYTYPE_DEVICE, true))?;
    }

    /// Pinned memory is of type host, and not managed.
    shared fn pinned_memory_is_of_type_host(g) {
        let pointer = g.mem_host_alloc(KIB, 0)?;
        let address = number(pointer);
        let found = (g.pointer_memory_type(address)?, g.pointer_is_managed(address)?);
        call!(g.mem_free_host(pointer))?;
        same(found, (CUmemorytype::CU_MEMORYTYPE_HOST, false))?;
    }

    /// Registered memory is of type host.
    shared fn registered_memory_is_of_type_host(g) {
        let mut own = vec![0_u8; 64 * KIB];
        call!(g.mem_host_register(own.as_mut_ptr().cast(), own.len(), 0))?;
        let found = g.pointer_memory_type(number(own.as_ptr()) + 100);
        call!(g.mem_host_unregister(own.as_mut_ptr().cast()))?;
        same(found?, CUmemorytype::CU_MEMORYTYPE_HOST)?;
        refused(g.pointer_memory_type(number(own.as_ptr()) + 100), code::INVALID_VALUE)?;
    }

    /// Stream-ordered memory is of type device.
    shared fn stream_ordered_memory_is_of_type_device(g) {
        let pointer = call!(g.mem_alloc_async(KIB, ptr::null_mut()))?;
        let found = g.pointer_memory_type(pointer)?;
        call!(g.mem_free_async(pointer, ptr::null_mut()))?;
        g.ctx_synchronize()?;
        same(found, CUmemorytype::CU_MEMORYTYPE_DEVICE)?;
    }

    /// A pointer that the driver doesn't know is refused.
    shared fn an_unknown_pointer_is_refused(g) {
        let local = 0_u64;
        refused(g.pointer_memory_type(number(&raw const local)), code::INVALID_VALUE)?;
        refused(g.pointer_memory_type(0), code::INVALID_VALUE)?;
    }

    /// Asked for several attributes, an unknown pointer has no type and no context.
    shared fn an_unknown_pointer_has_empty_attributes(g) {
        let local = 0_u64;
        let mut kind: c_uint = 77;
        let mut context: CUcontext = ptr::dangling_mut();
        call!(g.pointer_get_attributes(
            &mut [P::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, P::CU_POINTER_ATTRIBUTE_CONTEXT],
            &mut [(&raw mut kind).cast(), (&raw mut context).cast()],
            number(&raw const local),
        ))?;
        same((kind, context.is_null()), (0, true))?;
    }

    /// An unknown pointer is its own host pointer, for want of another.
    shared fn an_unknown_pointer_is_its_host_pointer(g) {
        let local = 0_u64;
        let address = number(&raw const local);
        let mut value = 0_u64;
        call!(g.pointer_get_attributes(
            &mut [P::CU_POINTER_ATTRIBUTE_HOST_POINTER],
            &mut [(&raw mut value).cast()],
            address,
        ))?;
        same(value, address)?;
    }

    /// Of an unknown pointer, the range is left as it was, and all else is written.
    shared fn an_unknown_pointer_leaves_some_attributes(g) {
        let local = 0_u64;
        let mut left = Vec::new();
        for which in (1..=17).filter(|which| *which != P::CU_POINTER_ATTRIBUTE_P2P_TOKENS.0) {
            let mut value = [0x77_u8; 64];
            let result = call!(g.pointer_get_attributes(
                &mut [P(which)],
                &mut [value.as_mut_ptr().cast()],
                number(&raw const local),
            ));
            match result {
                Ok(()) if value[0] == 0x77 => left.push(which),
                Ok(()) => {}
                Err(error) => g.note(format!("attribute {which} is refused: {}", error.code().0)),
            }
        }
        same(left, LEFT_ALONE.to_vec())?;
    }

    /// Several attributes are answered at once.
    shared fn several_attributes_are_answered_at_once(g) {
        let pointer = g.mem_alloc(KIB)?;
        let mut kind: c_uint = 0;
        let mut ordinal: c_int = -1;
        call!(g.pointer_get_attributes(
            &mut [P::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, P::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL],
            &mut [(&raw mut kind).cast(), (&raw mut ordinal).cast()],
            pointer,
        ))?;
        call!(g.mem_free(pointer))?;
        same((kind, ordinal), (CUmemorytype::CU_MEMORYTYPE_DEVICE.0, g.device()))?;
    }

    /// A freed pointer is unknown.
    shared fn a_freed_pointer_is_unknown(g) {
        let pointer = g.mem_alloc(4 << 20)?;
        call!(g.mem_free(pointer))?;
        refused(g.pointer_memory_type(pointer), code::INVALID_VALUE)?;
    }

    /// Memory knows the context that it was made in.
    shared fn memory_knows_its_context(g) {
        let pointer = g.mem_alloc(KIB)?;
        let found = (g.pointer_context(pointer)?, g.pointer_device_ordinal(pointer)?);
        call!(g.mem_free(pointer))?;
        same(found, (g.context(), g.device()))?;
    }

    /// Stream-ordered memory belongs to no context.
    shared fn stream_ordered_memory_has_no_context(g) {
        let pointer = call!(g.mem_alloc_async(KIB, ptr::null_mut()))?;
        let found = g.pointer_context(pointer);
        call!(g.mem_free_async(pointer, ptr::null_mut()))?;
        g.ctx_synchronize()?;
        same(found?.is_null(), true)?;
    }

    /// No two allocations have the same number, not even at the same address.
    shared fn buffer_numbers_are_never_used_again(g) {
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..20 {
            let pointer = g.mem_alloc(KIB)?;
            let number = g.pointer_buffer_id(pointer)?;
            call!(g.mem_free(pointer))?;
            holds(seen.insert(number), "a number came twice")?;
        }
    }

    /// A pointer inside an allocation knows its range.
    shared fn a_pointer_inside_knows_its_range(g) {
        let pointer = g.mem_alloc(5000)?;
        let inside = pointer + 3000;
        let start = attribute(g, P::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside, 0_u64)?;
        let bytes = attribute(g, P::CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside, 0_usize)?;
        call!(g.mem_free(pointer))?;
        same((start, bytes), (pointer, 5000))?;
    }

    /// Managed and pinned memory has a host pointer: its address.
    shared fn host_visible_memory_has_a_host_pointer(g) {
        let managed = g.managed(KIB)?;
        let pinned = g.mem_host_alloc(KIB, 0)?;
        let which = P::CU_POINTER_ATTRIBUTE_HOST_POINTER;
        let found = (
            attribute(g, which, managed + 5, 0_u64)?,
            attribute(g, which, number(pinned) + 5, 0_u64)?,
        );
        let expected = (managed + 5, number(pinned) + 5);
        call!(g.mem_free(managed))?;
        call!(g.mem_free_host(pinned))?;
        same(found, expected)?;
    }

    /// Device memory has no host pointer.
    shared fn device_memory_has_no_host_pointer(g) {
        let pointer = g.mem_alloc(KIB)?;
        let mut value = 0_u64;
        let which = P::CU_POINTER_ATTRIBUTE_HOST_POINTER;
        let result = call!(g.pointer_get_attribute((&raw mut value).cast(), which, pointer));
        call!(g.mem_free(pointer))?;
        refused(result, code::INVALID_VALUE)?;
    }

    /// All memory has a device pointer: its address.
    shared fn memory_has_a_device_pointer(g) {
        let managed = g.managed(KIB)?;
        let pinned = g.mem_host_alloc(KIB, 0)?;
        let which = P::CU_POINTER_ATTRIBUTE_DEVICE_POINTER;
        let found = (
            attribute(g, which, managed, 0_u64)?,
            attribute(g, which, number(pinned), 0_u64)?,
        );
        let expected = (managed, number(pinned));
        call!(g.mem_free(managed))?;
        call!(g.mem_free_host(pinned))?;
        same(found, expected)?;
    }

    /// Stream-ordered memory knows its pool, other memory has none.
    shared fn stream_ordered_memory_knows_its_pool(g) {
        let pool = g.device_get_mem_pool(g.device())?;
        let ordered = call!(g.mem_alloc_async(KIB, ptr::null_mut()))?;
        let plain = g.mem_alloc(KIB)?;
        let which = P::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE;
        let empty: CUmemoryPool = ptr::null_mut();
        let found = (attribute(g, which, ordered, empty)?, attribute(g, which, plain, empty)?);
        call!(g.mem_free_async(ordered, ptr::null_mut()))?;
        call!(g.mem_free(plain))?;
        g.ctx_synchronize()?;
        same(found, (pool, empty))?;
    }

    /// Whether its copies are always synchronous can be set.
    shared fn synchronous_copies_can_be_set(g) {
        let pointer = g.mem_alloc(KIB)?;
        let which = P::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
        let before = attribute(g, which, pointer, 7 as c_uint)?;
        let one: c_uint = 1;
        call!(g.pointer_set_attribute((&raw const one).cast(), which, pointer))?;
        let after = attribute(g, which, pointer, 7 as c_uint)?;
        call!(g.mem_free(pointer))?;
        same((before, after), (0, 1))?;
    }

    /// No other attribute can be set.
    shared fn other_attributes_are_not_set(g) {
        let pointer = g.mem_alloc(KIB)?;
        let one: c_uint = 1;
        let which = P::CU_POINTER_ATTRIBUTE_IS_MANAGED;
        let result = call!(g.pointer_set_attribute((&raw const one).cast(), which, pointer));
        call!(g.mem_free(pointer))?;
        refused(result, code::INVALID_VALUE)?;
    }

    /// A number that is no attribute is refused.
    shared fn an_unknown_attribute_is_refused(g) {
        let pointer = g.mem_alloc(KIB)?;
        let mut value = [0_u64; 8];
        let data: *mut c_void = value.as_mut_ptr().cast();
        let result = call!(g.pointer_get_attribute(data, P(10_000), pointer));
        call!(g.mem_free(pointer))?;
        refused(result, code::INVALID_VALUE)?;
    }

    /// It needs no context.
    shared fn needs_no_context(g) {
        let pointer = g.mem_alloc(KIB)?;
        let found = g.elsewhere(|g| Ok(g.pointer_memory_type(pointer)));
        call!(g.mem_free(pointer))?;
        same(found??, CUmemorytype::CU_MEMORYTYPE_DEVICE)?;
    }
}
