//! Host memory of the program that the driver pins.

use core::ffi::c_void;
use core::ptr;

use cumem_sys::{CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_PORTABLE, CUresult};

use super::{KIB, code};
use crate::behaviour::{Check, behaviours, call, refused, same};
use crate::ground::{Ground, host, number};

const ALREADY: CUresult = CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
const NOT: CUresult = CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;

/// Whole pages of the program's own, touched.
struct Pages(*mut c_void, usize);

impl Pages {
    fn new(bytes: usize) -> Check<Self> {
        // SAFETY: without a wish the call takes free address space only.
        let pages = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if pages == libc::MAP_FAILED {
            return crate::behaviour::skip("the system has no memory");
        }
        // SAFETY: the pages are ours.
        unsafe { pages.cast::<u8>().write_bytes(1, bytes) };
        Ok(Self(pages, bytes))
    }

    fn register(&self, g: &Ground<'_>) -> Check {
        Ok(call!(g.mem_host_register(self.0, self.1, 0))?)
    }

    fn unregister(&self, g: &Ground<'_>) -> Check {
        Ok(call!(g.mem_host_unregister(self.0))?)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the pages are ours, and nothing uses them any more.
        unsafe { libc::munmap(self.0, self.1) };
    }
}

behaviours! {
    area "registered";

    /// Memory can be registered, and unregistered.
    shared fn can_be_undone(g) {
        let pages = Pages::new(64 * KIB)?;
        pages.register(g)?;
        pages.unregister(g)?;
        pages.register(g)?;
        pages.unregister(g)?;
    }

    /// Size 0 is refused.
    shared fn size_0_is_refused(g) {
        let pages = Pages::new(4 * KIB)?;
        refused(call!(g.mem_host_register(pages.0, 0, 0)), code::INVALID_VALUE)?;
    }

    /// Null is refused.
    shared fn null_is_refused(g) {
        let null = ptr::null_mut();
        refused(call!(g.mem_host_register(null, 4 * KIB, 0)), code::INVALID_VALUE)?;
        refused(call!(g.mem_host_unregister(null)), code::INVALID_VALUE)?;
    }

    /// Unknown flags are refused.
    shared fn unknown_flags_are_refused(g) {
        let pages = Pages::new(4 * KIB)?;
        refused(call!(g.mem_host_register(pages.0, pages.1, 1 << 20)), code::INVALID_VALUE)?;
    }

    /// Registering twice is refused.
    shared fn twice_is_refused(g) {
        let pages = Pages::new(64 * KIB)?;
        pages.register(g)?;
        let again = call!(g.mem_host_register(pages.0, pages.1, 0));
        pages.unregister(g)?;
        refused(again, ALREADY)?;
    }

    /// A range that overlaps a registered one is refused.
    shared fn an_overlap_is_refused(g) {
        let pages = Pages::new(64 * KIB)?;
        call!(g.mem_host_register(pages.0, 16 * KIB, 0))?;
        let later = pages.0.wrapping_byte_add(8 * KIB);
        let overlap = call!(g.mem_host_register(later, 32 * KIB, 0));
        call!(g.mem_host_unregister(pages.0))?;
        refused(overlap, ALREADY)?;
    }

    /// Two ranges that touch are both registered.
    shared fn neighbours_are_allowed(g) {
        let pages = Pages::new(64 * KIB)?;
        let later = pages.0.wrapping_byte_add(16 * KIB);
        call!(g.mem_host_register(pages.0, 16 * KIB, 0))?;
        call!(g.mem_host_register(later, 16 * KIB, 0))?;
        call!(g.mem_host_unregister(pages.0))?;
        call!(g.mem_host_unregister(later))?;
    }

    /// What isn't registered can't be unregistered.
    shared fn unregistering_the_unknown_is_refused(g) {
        let pages = Pages::new(4 * KIB)?;
        refused(call!(g.mem_host_unregister(pages.0)), NOT)?;
    }

    /// Unregistering twice is refused.
    shared fn unregistering_twice_is_refused(g) {
        let pages = Pages::new(4 * KIB)?;
        pages.register(g)?;
        pages.unregister(g)?;
        refused(call!(g.mem_host_unregister(pages.0)), NOT)?;
    }

    /// It is unregistered by its start only.
    shared fn unregistering_the_middle_is_refused(g) {
        let pages = Pages::new(64 * KIB)?;
        pages.register(g)?;
        let middle = call!(g.mem_host_unregister(pages.0.wrapping_byte_add(4 * KIB)));
        pages.unregister(g)?;
        refused(middle, code::INVALID_VALUE)?;
    }

    /// Neither start nor size need be whole pages.
    shared fn need_not_be_whole_pages(g) {
        let pages = Pages::new(64 * KIB)?;
        let odd = pages.0.wrapping_byte_add(100);
        call!(g.mem_host_register(odd, 5000, 0))?;
        call!(g.mem_host_unregister(odd))?;
    }

    /// The device knows it by the same address.
    shared fn the_device_knows_it_by_its_address(g) {
        let pages = Pages::new(64 * KIB)?;
        call!(g.mem_host_register(pages.0, pages.1, CU_MEMHOSTREGISTER_DEVICEMAP))?;
        let seen = g.mem_host_get_device_pointer(pages.0)?;
        pages.unregister(g)?;
        same(seen, number(pages.0))?;
        refused(g.mem_host_get_device_pointer(pages.0), code::INVALID_VALUE)?;
    }

    /// Its flags can be read.
    shared fn flags_can_be_read(g) {
        let pages = Pages::new(64 * KIB)?;
        call!(g.mem_host_register(pages.0, pages.1, CU_MEMHOSTREGISTER_PORTABLE))?;
        let flags = g.mem_host_get_flags(pages.0)?;
        pages.unregister(g)?;
        same(flags, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP)?;
    }

    /// Pinned memory can't be registered.
    shared fn pinned_memory_is_refused(g) {
        let pointer = g.mem_host_alloc(64 * KIB, 0)?;
        let result = call!(g.mem_host_register(pointer, 64 * KIB, 0));
        call!(g.mem_free_host(pointer))?;
        refused(result, code::INVALID_VALUE)?;
    }

    /// Pinned memory can't be unregistered.
    shared fn unregistering_pinned_memory_is_refused(g) {
        let pointer = g.mem_host_alloc(64 * KIB, 0)?;
        let result = call!(g.mem_host_unregister(pointer));
        call!(g.mem_free_host(pointer))?;
        refused(result, code::INVALID_VALUE)?;
    }

    /// Managed memory can't be registered.
    shared fn managed_memory_is_refused(g) {
        let pointer = g.managed(64 * KIB)?;
        let result = call!(g.mem_host_register(host(pointer), 64 * KIB, 0));
        call!(g.mem_free(pointer))?;
        refused(result, code::INVALID_VALUE)?;
    }

    /// It can't be freed as pinned memory.
    shared fn freeing_it_is_refused(g) {
        let pages = Pages::new(64 * KIB)?;
        pages.register(g)?;
        let freed = call!(g.mem_free_host(pages.0));
        pages.unregister(g)?;
        refused(freed, code::INVALID_VALUE)?;
    }

    /// Registering needs a current context.
    shared fn needs_a_context(g) {
        let pages = Pages::new(4 * KIB)?;
        let address = number(pages.0);
        g.elsewhere(|g| {
            let result = call!(g.mem_host_register(host(address), 4 * KIB, 0));
            refused(result, code::INVALID_CONTEXT)
        })?;
    }

    /// Unregistering needs none.
    shared fn is_undone_without_a_context(g) {
        let pages = Pages::new(4 * KIB)?;
        pages.register(g)?;
        let address = number(pages.0);
        let result = g.elsewhere(|g| Ok(call!(g.mem_host_unregister(host(address)))));
        if let Err(error) = result? {
            pages.unregister(g)?;
            return Err(error.into());
        }
    }
}
