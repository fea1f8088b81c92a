//! Pinned host memory.

use core::ptr;

use cumem_sys::{
    CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_WRITECOMBINED,
};

use super::{KIB, TOO_MUCH, code};
use crate::behaviour::{behaviours, call, holds, refused, same};
use crate::ground::number;

behaviours! {
    area "pinned";

    /// Size 0 is null, successfully.
    shared fn size_0_is_null(g) {
        same(g.mem_host_alloc(0, 0)?, ptr::null_mut())?;
    }

    /// More than any machine has is out of memory.
    shared fn too_much_is_out_of_memory(g) {
        refused(g.mem_host_alloc(TOO_MUCH, 0), code::OUT_OF_MEMORY)?;
    }

    /// Unknown flags are refused.
    shared fn unknown_flags_are_refused(g) {
        refused(g.mem_host_alloc(4 * KIB, 1 << 20), code::INVALID_VALUE)?;
    }

    /// Every combination of flags is allowed.
    shared fn all_flags_are_allowed(g) {
        for flags in 0..8 {
            let pointer = g.mem_host_alloc(4 * KIB, flags)?;
            call!(g.mem_free_host(pointer))?;
        }
    }

    /// The host can write and read it.
    shared fn the_host_can_use_it(g) {
        let pointer = g.mem_host_alloc(4 * KIB, 0)?;
        // SAFETY: the memory is live, and only this uses it.
        unsafe {
            pointer.cast::<u8>().write_bytes(0x5a, 4 * KIB);
            same(pointer.cast::<u8>().add(4095).read(), 0x5a)?;
        }
        call!(g.mem_free_host(pointer))?;
    }

    /// The device knows it by the same address.
    shared fn the_device_knows_it_by_its_address(g) {
        let pointer = g.mem_host_alloc(4 * KIB, 0)?;
        let seen = g.mem_host_get_device_pointer(pointer)?;
        let inside = g.mem_host_get_device_pointer(pointer.wrapping_byte_add(100))?;
        let address = number(pointer);
        call!(g.mem_free_host(pointer))?;
        same((seen, inside), (address, address + 100))?;
    }

    /// Memory that isn't pinned has no device pointer.
    shared fn pageable_memory_has_no_device_pointer(g) {
        let mut local = 0_u64;
        let pointer = (&raw mut local).cast();
        refused(g.mem_host_get_device_pointer(pointer), code::INVALID_VALUE)?;
    }

    /// Its flags can be read; with unified addressing all of it is mapped.
    shared fn flags_can_be_read(g) {
        let flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_WRITECOMBINED;
        let pointer = g.mem_host_alloc(4 * KIB, flags)?;
        let found = g.mem_host_get_flags(pointer)?;
        call!(g.mem_free_host(pointer))?;
        same(found, flags | CU_MEMHOSTALLOC_DEVICEMAP)?;
    }

    /// Without flags, it is mapped all the same.
    shared fn is_mapped_without_flags(g) {
        let pointer = g.mem_host_alloc(4 * KIB, 0)?;
        let found = g.mem_host_get_flags(pointer)?;
        call!(g.mem_free_host(pointer))?;
        same(found, CU_MEMHOSTALLOC_DEVICEMAP)?;
    }

    /// Freeing null does nothing, successfully.
    shared fn null_is_freed(g) {
        call!(g.mem_free_host(ptr::null_mut()))?;
    }

    /// Freeing twice is refused.
    shared fn a_double_free_is_refused(g) {
        let pointer = g.mem_host_alloc(4 * KIB, 0)?;
        call!(g.mem_free_host(pointer))?;
        refused(call!(g.mem_free_host(pointer)), code::INVALID_VALUE)?;
    }

    /// Freeing it as device memory is refused, and the right call still works.
    shared fn freeing_it_as_device_memory_is_refused(g) {
        let pointer = g.mem_host_alloc(4 * KIB, 0)?;
        refused(call!(g.mem_free(number(pointer))), code::INVALID_VALUE)?;
        call!(g.mem_free_host(pointer))?;
    }

    /// Freeing a pointer in its middle is refused.
    shared fn freeing_the_middle_is_refused(g) {
        let pointer = g.mem_host_alloc(4 * KIB, 0)?;
        let middle = pointer.wrapping_byte_add(512);
        refused(call!(g.mem_free_host(middle)), code::INVALID_VALUE)?;
        call!(g.mem_free_host(pointer))?;
    }

    /// Freeing memory of the stack is refused.
    shared fn freeing_the_stack_is_refused(g) {
        let mut local = 0_u64;
        let freed = call!(g.mem_free_host((&raw mut local).cast()));
        refused(freed, code::INVALID_VALUE)?;
    }

    /// It can be freed where no context is current.
    shared fn is_freed_without_a_context(g) {
        let address = number(g.mem_host_alloc(4 * KIB, 0)?);
        g.elsewhere(|g| Ok(call!(g.mem_free_host(crate::ground::host(address)))?))?;
    }

    /// Asking for its device pointer or flags needs a context.
    shared fn asking_about_it_needs_a_context(g) {
        let pointer = g.mem_host_alloc(4 * KIB, 0)?;
        let address = number(pointer);
        let (seen, flags) = g.elsewhere(|g| {
            let pointer = crate::ground::host(address);
            Ok((g.mem_host_get_device_pointer(pointer), g.mem_host_get_flags(pointer)))
        })?;
        call!(g.mem_free_host(pointer))?;
        refused(seen, code::INVALID_CONTEXT)?;
        refused(flags, code::INVALID_CONTEXT)?;
    }

    /// It is aligned to 512 bytes and more.
    shared fn is_aligned_to_512(g) {
        for bytes in [1, 700, 5000] {
            let pointer = g.mem_host_alloc(bytes, 0)?;
            call!(g.mem_free_host(pointer))?;
            same(number(pointer) % 512, 0)?;
        }
    }

    /// It is not taken from the device.
    shared fn takes_nothing_from_the_device(g) {
        let (before, _) = g.mem_get_info()?;
        let pointer = g.mem_host_alloc(32 << 20, 0)?;
        let (during, _) = g.mem_get_info()?;
        call!(g.mem_free_host(pointer))?;
        holds(before.abs_diff(during) < 16 << 20, "the device has less")?;
    }
}
