//! Pools of stream-ordered memory.

use core::ffi::c_int;
use core::mem;
use core::ptr;

use cumem_sys::{
    CUmemAccess_flags as Access, CUmemAccessDesc, CUmemAllocationType, CUmemLocation,
    CUmemPool_attribute as M, CUmemPoolProps, CUmemoryPool, CUstream,
};

use super::{MIB, code};
use crate::behaviour::{Check, behaviours, call, holds, refused, same};
use crate::ground::Ground;

const NULL: CUstream = ptr::null_mut();

fn get(g: &Ground<'_>, pool: CUmemoryPool, attribute: M) -> Check<u64> {
    let mut value = 0_u64;
    call!(g.mem_pool_get_attribute(pool, attribute, (&raw mut value).cast()))?;
    Ok(value)
}

fn set(
    g: &Ground<'_>,
    pool: CUmemoryPool,
    attribute: M,
    mut value: u64,
) -> Result<(), cumem_sys::CuError> {
    call!(g.mem_pool_set_attribute(pool, attribute, (&raw mut value).cast()))
}

fn properties(g: &Ground<'_>) -> CUmemPoolProps {
    // SAFETY: all bytes zero are valid for that structure of integers and a pointer.
    let mut properties: CUmemPoolProps = unsafe { mem::zeroed() };
    properties.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = CUmemLocation::device(g.device());
    properties
}

/// A pool of its own for one check, destroyed at its end.
fn with_pool(g: &Ground<'_>, check: impl FnOnce(CUmemoryPool) -> Check) -> Check {
    let pool = g.mem_pool_create(&properties(g))?;
    let result = check(pool);
    g.ctx_synchronize()?;
    call!(g.mem_pool_destroy(pool))?;
    result
}

const RESERVED: M = M::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
const RESERVED_HIGH: M = M::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
const USED: M = M::CU_MEMPOOL_ATTR_USED_MEM_CURRENT;
const USED_HIGH: M = M::CU_MEMPOOL_ATTR_USED_MEM_HIGH;
const THRESHOLD: M = M::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;

behaviours! {
    area "pool";

    /// A device begins with its default pool.
    shared fn a_device_begins_with_its_default_pool(g) {
        let default = g.device_get_default_mem_pool(g.device())?;
        holds(!default.is_null(), "null")?;
        same(g.device_get_mem_pool(g.device())?, default)?;
    }

    /// The default pool can't be destroyed.
    shared fn the_default_pool_is_not_destroyed(g) {
        let default = g.device_get_default_mem_pool(g.device())?;
        refused(call!(g.mem_pool_destroy(default)), code::INVALID_VALUE)?;
    }

    /// No device, no pool.
    shared fn no_device_no_pool(g) {
        refused(g.device_get_default_mem_pool(1000), code::INVALID_DEVICE)?;
        let mut nowhere = properties(g);
        nowhere.location = CUmemLocation::device(1000);
        refused(g.mem_pool_create(&nowhere), code::INVALID_VALUE)?;
    }

    /// Properties without a type are refused.
    shared fn incomplete_properties_are_refused(g) {
        let mut empty = properties(g);
        empty.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_INVALID;
        refused(g.mem_pool_create(&empty), code::INVALID_VALUE)?;
    }

    /// The threshold is 0 at first, and what is set from then on.
    shared fn the_threshold_is_0_at_first(g) {
        with_pool(g, |pool| {
            same(get(g, pool, THRESHOLD)?, 0)?;
            set(g, pool, THRESHOLD, u64::MAX)?;
            same(get(g, pool, THRESHOLD)?, u64::MAX)
        })?;
    }

    /// Blocks are used again in all three ways, at first.
    shared fn blocks_are_used_again_in_all_ways(g) {
        with_pool(g, |pool| {
            for attribute in [
                M::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
                M::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
                M::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
            ] {
                let mut value: c_int = 7;
                call!(g.mem_pool_get_attribute(pool, attribute, (&raw mut value).cast()))?;
                same((attribute, value), (attribute, 1))?;
                value = 0;
                call!(g.mem_pool_set_attribute(pool, attribute, (&raw mut value).cast()))?;
                value = 7;
                call!(g.mem_pool_get_attribute(pool, attribute, (&raw mut value).cast()))?;
                same((attribute, value), (attribute, 0))?;
            }
            Ok(())
        })?;
    }

    /// A new pool holds nothing.
    shared fn a_new_pool_holds_nothing(g) {
        with_pool(g, |pool| {
            same((get(g, pool, RESERVED)?, get(g, pool, USED)?), (0, 0))
        })?;
    }

    /// What is allocated is used, and what is used is reserved.
    shared fn what_is_allocated_is_counted(g) {
        with_pool(g, |pool| {
            let pointer = call!(g.mem_alloc_from_pool_async(3 * MIB, pool, NULL))?;
            let (used, reserved) = (get(g, pool, USED)?, get(g, pool, RESERVED)?);
            call!(g.mem_free_async(pointer, NULL))?;
            g.ctx_synchronize()?;
            same(get(g, pool, USED)?, 0)?;
            g.note(format!("3 MiB used {used}, reserved {reserved}"));
            holds(used >= 3 * MIB as u64 && reserved >= used, "too little")
        })?;
    }

    /// A pool grows by 32 MiB, and counts what was asked for.
    shared fn grows_by_32_mib(g) {
        with_pool(g, |pool| {
            let pointer = call!(g.mem_alloc_from_pool_async(1000, pool, NULL))?;
            let (used, reserved) = (get(g, pool, USED)?, get(g, pool, RESERVED)?);
            call!(g.mem_free_async(pointer, NULL))?;
            same((used, reserved), (1000, 32 * MIB as u64))
        })?;
    }

    /// High watermarks stay, until they are reset to what is.
    shared fn high_watermarks_stay(g) {
        with_pool(g, |pool| {
            let pointer = call!(g.mem_alloc_from_pool_async(MIB, pool, NULL))?;
            call!(g.mem_free_async(pointer, NULL))?;
            g.ctx_synchronize()?;
            holds(get(g, pool, USED_HIGH)? >= MIB as u64, "the use was not noted")?;
            holds(get(g, pool, RESERVED_HIGH)? >= MIB as u64, "the reserve was not noted")?;
            set(g, pool, USED_HIGH, 0)?;
            same(get(g, pool, USED_HIGH)?, 0)
        })?;
    }

    /// High watermarks can be set to 0 only.
    shared fn high_watermarks_are_set_to_0_only(g) {
        with_pool(g, |pool| {
            refused(set(g, pool, USED_HIGH, 1), code::INVALID_VALUE)
        })?;
    }

    /// What is counted now can't be set.
    shared fn counts_are_not_set(g) {
        with_pool(g, |pool| {
            refused(set(g, pool, USED, 0), code::INVALID_VALUE)?;
            refused(set(g, pool, RESERVED, 0), code::INVALID_VALUE)
        })?;
    }

    /// Without a threshold, synchronising gives unused memory back.
    shared fn synchronising_gives_unused_memory_back(g) {
        with_pool(g, |pool| {
            let pointer = call!(g.mem_alloc_from_pool_async(MIB, pool, NULL))?;
            call!(g.mem_free_async(pointer, NULL))?;
            g.ctx_synchronize()?;
            same(get(g, pool, RESERVED)?, 0)
        })?;
    }

    /// Synchronising a stream gives unused memory back as well.
    shared fn synchronising_a_stream_gives_memory_back(g) {
        with_pool(g, |pool| {
            let pointer = call!(g.mem_alloc_from_pool_async(MIB, pool, NULL))?;
            call!(g.mem_free_async(pointer, NULL))?;
            call!(g.stream_synchronize(NULL))?;
            same(get(g, pool, RESERVED)?, 0)
        })?;
    }

    /// With a threshold, synchronising keeps what is below it.
    shared fn a_threshold_keeps_memory(g) {
        with_pool(g, |pool| {
            set(g, pool, THRESHOLD, u64::MAX)?;
            let pointer = call!(g.mem_alloc_from_pool_async(MIB, pool, NULL))?;
            let reserved = get(g, pool, RESERVED)?;
            call!(g.mem_free_async(pointer, NULL))?;
            g.ctx_synchronize()?;
            same(get(g, pool, RESERVED)?, reserved)?;
            call!(g.mem_pool_trim_to(pool, 0))?;
            same(get(g, pool, RESERVED)?, 0)
        })?;
    }

    /// Trimming leaves what is in use.
    shared fn trimming_leaves_what_is_in_use(g) {
        with_pool(g, |pool| {
            let pointer = call!(g.mem_alloc_from_pool_async(MIB, pool, NULL))?;
            g.ctx_synchronize()?;
            call!(g.mem_pool_trim_to(pool, 0))?;
            let reserved = get(g, pool, RESERVED)?;
            call!(g.memset_d8(pointer, 1, MIB))?;
            call!(g.mem_free_async(pointer, NULL))?;
            holds(reserved >= MIB as u64, "it took what is in use")
        })?;
    }

    /// What a pool reserves is missing from what is free.
    shared fn what_is_reserved_is_missing(g) {
        with_pool(g, |pool| {
            let (before, _) = g.mem_get_info()?;
            let pointer = call!(g.mem_alloc_from_pool_async(256 * MIB, pool, NULL))?;
            g.ctx_synchronize()?;
            let (during, _) = g.mem_get_info()?;
            call!(g.mem_free_async(pointer, NULL))?;
            g.ctx_synchronize()?;
            holds(during + 256 * MIB <= before, "not all of it")
        })?;
    }

    /// The device's pool can be chosen.
    shared fn the_devices_pool_is_chosen(g) {
        let default = g.device_get_default_mem_pool(g.device())?;
        with_pool(g, |pool| {
            call!(g.device_set_mem_pool(g.device(), pool))?;
            let chosen = g.device_get_mem_pool(g.device())?;
            let pointer = call!(g.mem_alloc_async(MIB, NULL));
            let used = get(g, pool, USED);
            call!(g.device_set_mem_pool(g.device(), default))?;
            call!(g.mem_free_async(pointer?, NULL))?;
            same(chosen, pool)?;
            holds(used? >= MIB as u64, "it was taken from another pool")
        })?;
    }

    /// Destroying the chosen pool chooses the default again.
    shared fn destroying_the_chosen_pool_chooses_the_default(g) {
        let default = g.device_get_default_mem_pool(g.device())?;
        let pool = g.mem_pool_create(&properties(g))?;
        call!(g.device_set_mem_pool(g.device(), pool))?;
        call!(g.mem_pool_destroy(pool))?;
        let chosen = g.device_get_mem_pool(g.device())?;
        call!(g.device_set_mem_pool(g.device(), default))?;
        same(chosen, default)?;
    }

    /// Memory outlives its pool's destruction.
    shared fn memory_outlives_its_pool(g) {
        let pool = g.mem_pool_create(&properties(g))?;
        let pointer = call!(g.mem_alloc_from_pool_async(MIB, pool, NULL))?;
        g.ctx_synchronize()?;
        call!(g.mem_pool_destroy(pool))?;
        call!(g.memset_d8(pointer, 1, MIB))?;
        call!(g.mem_free_async(pointer, NULL))?;
        g.ctx_synchronize()?;
    }

    /// Its own device can use a pool.
    shared fn its_own_device_has_access(g) {
        with_pool(g, |pool| {
            let location = CUmemLocation::device(g.device());
            let access = call!(g.mem_pool_get_access(pool, location))?;
            same(access, Access::CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        })?;
    }

    /// Its own device can't be shut out.
    shared fn its_own_device_is_not_shut_out(g) {
        with_pool(g, |pool| {
            let none = CUmemAccessDesc {
                location: CUmemLocation::device(g.device()),
                flags: Access::CU_MEM_ACCESS_FLAGS_PROT_NONE,
            };
            refused(call!(g.mem_pool_set_access(pool, &[none])), code::INVALID_DEVICE)
        })?;
    }

    /// A limit on the pool's size is kept.
    shared fn a_limit_is_kept(g) {
        let mut limited = properties(g);
        limited.maxSize = 32 * MIB;
        let pool = g.mem_pool_create(&limited)?;
        let result = call!(g.mem_alloc_from_pool_async(256 * MIB, pool, NULL));
        if let Ok(pointer) = result {
            call!(g.mem_free_async(pointer, NULL))?;
        }
        g.ctx_synchronize()?;
        call!(g.mem_pool_destroy(pool))?;
        refused(result, code::OUT_OF_MEMORY)?;
    }
}
