//! What the driver of this machine has, and whether each group of its calls works.
//!
//! ```text
//! driver_report [--library PATH] [--no-init] [--no-smoke]
//! ```
//!
//! Prints the diagnosis: what was tried, what was found, and each symbol with where it came from.
//! Then one small use of each group of calls (a few kilobytes of each kind of memory, one kernel), and
//! what the driver's own look-up hands out for a C name at different versions. The exit code is 1 if
//! there is no usable driver, and 2 if a group failed. What fails leaves its memory to the end of the
//! process, which comes soon.

use std::error::Error;
use std::ffi::{CStr, c_void};
use std::path::PathBuf;
use std::process::ExitCode;
use std::ptr;

use cumem_sys::{
    CU_MEMHOSTALLOC_DEVICEMAP, CUcontext, CUctx_flags, CUdevice, CUdevice_attribute, CUdeviceptr,
    CUevent_flags, CUmem_advise, CUmem_range_attribute, CUmemAccess_flags, CUmemAccessDesc,
    CUmemAllocationGranularity_flags, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemAllocationProp_st__bindgen_ty_1, CUmemAllocationType, CUmemAttach_flags, CUmemLocation,
    CUmemPool_attribute, CUmemorytype, CUstream_flags, CuError, Diagnose, Driver,
};

const BYTES: usize = 4096;

fn main() -> ExitCode {
    let mut diagnose = Diagnose::new();
    let (mut init, mut smoke, mut library) = (true, true, None);
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--no-init") => init = false,
            Some("--no-smoke") => smoke = false,
            Some("--library") => library = arguments.next().map(PathBuf::from),
            _ => {
                eprintln!("driver_report [--library PATH] [--no-init] [--no-smoke]");
                return ExitCode::FAILURE;
            }
        }
    }
    if let Some(library) = &library {
        diagnose = diagnose.path(library);
    }
    if !init {
        diagnose = diagnose.without_init();
    }
    let diagnosis = diagnose.run();
    println!("{diagnosis}");
    if diagnosis.error().is_some() {
        return ExitCode::FAILURE;
    }
    if !init || !smoke {
        return ExitCode::SUCCESS;
    }
    let driver = library.map_or_else(Driver::load, Driver::load_from);
    match driver
        .map_err(Failure::from)
        .and_then(|driver| try_all(&driver))
    {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(2),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

type Failure = Box<dyn Error>;

/// A small use of a group of calls: what it saw, or why it failed.
type Group = fn(&Driver, CUdevice) -> Result<String, Failure>;

const GROUPS: &[(&str, Group)] = &[
    ("devices", devices),
    ("error names", error_names),
    ("contexts", contexts),
    ("device memory", device_memory),
    ("managed memory", managed_memory),
    ("advice", advice),
    ("prefetch", prefetch),
    ("pinned memory", pinned_memory),
    ("registered memory", registered_memory),
    ("pointer attributes", pointer_attributes),
    ("sets and copies", sets_and_copies),
    ("streams and events", streams_and_events),
    ("host functions", host_functions),
    ("stream-ordered memory", stream_ordered_memory),
    ("pools", pools),
    ("virtual memory", virtual_memory),
    ("unmap without context", unmap_without_context),
    ("kernels", kernels),
    ("wrong ordinal", wrong_ordinal),
];

/// How many groups failed. What the driver lacks is not a failure.
fn try_all(driver: &Driver) -> Result<usize, Failure> {
    let device = driver.device_get(0)?;
    let context = driver.device_primary_ctx_retain(device)?;
    // SAFETY: the context was just retained, and is released only at the end.
    unsafe { driver.ctx_push_current(context) }?;
    let mut failed = 0;
    println!("one use of each group of calls");
    for (name, group) in GROUPS {
        match group(driver, device) {
            Ok(saw) => println!("{name:22} ok       {saw}"),
            Err(error) if is_unsupported(error.as_ref()) => println!("{name:22} lacking  {error}"),
            Err(error) => {
                failed += 1;
                println!("{name:22} FAILED   {error}");
            }
        }
    }
    look_up(driver);
    driver.ctx_pop_current()?;
    // SAFETY: it was retained above, and nothing of it is used any more.
    unsafe { driver.device_primary_ctx_release(device) }?;
    Ok(failed)
}

fn is_unsupported(error: &(dyn Error + 'static)) -> bool {
    error
        .downcast_ref::<CuError>()
        .is_some_and(|error| error.missing_symbol().is_some())
}

fn check(holds: bool, what: &str) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(what.into()) }
}

fn devices(driver: &Driver, device: CUdevice) -> Result<String, Failure> {
    let attribute = |of| driver.device_get_attribute(of, device);
    let major = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let managed = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)?;
    Ok(format!(
        "{} of them; 0 is {}, compute {major}.{minor}, {} MiB, concurrent managed access {managed}",
        driver.device_get_count()?,
        driver.device_get_name(device)?,
        driver.device_total_mem(device)? >> 20,
    ))
}

fn error_names(driver: &Driver, _: CUdevice) -> Result<String, Failure> {
    let code = cumem_sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    Ok(format!(
        "{:?}: {:?}",
        driver.get_error_name(code)?,
        driver.get_error_string(code)?
    ))
}

fn contexts(driver: &Driver, device: CUdevice) -> Result<String, Failure> {
    let before = driver.ctx_get_current()?;
    let context = driver.ctx_create(CUctx_flags::CU_CTX_SCHED_AUTO, device)?;
    check(
        driver.ctx_get_current()? == context,
        "a new context is not current",
    )?;
    check(
        driver.ctx_get_device()? == device,
        "it is of another device",
    )?;
    driver.ctx_synchronize()?;
    // SAFETY: the context was made above, and nothing is in it.
    unsafe { driver.ctx_destroy(context) }?;
    check(
        driver.ctx_get_current()? == before,
        "the stack is not as before",
    )?;
    let (_, active) = driver.device_primary_ctx_get_state(device)?;
    check(active, "the primary context is not active")?;
    Ok("made, current, destroyed; the stack is as before".to_owned())
}

fn device_memory(driver: &Driver, _: CUdevice) -> Result<String, Failure> {
    let (free, total) = driver.mem_get_info()?;
    let block = driver.mem_alloc(BYTES)?;
    let range = driver.mem_get_address_range(block + 1)?;
    // SAFETY: it was allocated above, and nothing uses it.
    unsafe { driver.mem_free(block) }?;
    check(range.0 == block, "the range begins elsewhere")?;
    Ok(format!(
        "{} of {} MiB free; a block of {BYTES} at {block:#x}, freed",
        free >> 20,
        total >> 20
    ))
}

fn managed(driver: &Driver) -> Result<CUdeviceptr, CuError> {
    driver.mem_alloc_managed(BYTES, CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL)
}

fn managed_memory(driver: &Driver, _: CUdevice) -> Result<String, Failure> {
    let block = managed(driver)?;
    let words = ptr::with_exposed_provenance_mut::<u32>(block as usize);
    // SAFETY: managed memory is the host's to touch while no kernel runs; then it is freed, once.
    let read = unsafe {
        words.write(7);
        let read = words.read();
        driver.mem_free(block)?;
        read
    };
    check(read == 7, "the host read something else than it wrote")?;
    Ok("written and read by the host, freed".to_owned())
}

fn advice(driver: &Driver, device: CUdevice) -> Result<String, Failure> {
    let block = managed(driver)?;
    let advice = CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
    let answer = driver.mem_advise(block, BYTES, advice, CUmemLocation::device(device));
    let attribute = CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION;
    let location = driver.mem_range_get_attribute(attribute, block, BYTES);
    let host = driver.mem_advise(block, BYTES, advice, CUmemLocation::host());
    // SAFETY: it was allocated above, and nothing uses it.
    unsafe { driver.mem_free(block) }?;
    answer?;
    host?;
    check(location? == device, "the preferred location is another")?;
    Ok("preferred location set to the device, read back, set to the host".to_owned())
}

fn prefetch(driver: &Driver, device: CUdevice) -> Result<String, Failure> {
    let block = managed(driver)?;
    // SAFETY: the null stream is live, and is waited for before the block is freed.
    let answer = unsafe {
        let location = CUmemLocation::device(device);
        let there = driver.mem_prefetch_async(block, BYTES, location, ptr::null_mut());
        let back = driver.mem_prefetch_async(block, BYTES, CUmemLocation::host(), ptr::null_mut());
        driver.ctx_synchronize()?;
        driver.mem_free(block)?;
        there.and(back)
    };
    answer?;
    Ok("to the device and back".to_owned())
}

fn pinned_memory(driver: &Driver, _: CUdevice) -> Result<String, Failure> {
    let block = driver.mem_host_alloc(BYTES, CU_MEMHOSTALLOC_DEVICEMAP)?;
    let flags = driver.mem_host_get_flags(block);
    let device_pointer = driver.mem_host_get_device_pointer(block);
    // SAFETY: the memory is the host's; then it is freed, once.
    unsafe {
        block.cast::<u8>().write_bytes(1, BYTES);
        driver.mem_free_host(block)?;
    }
    Ok(format!(
        "flags {:#x}, same address for the device: {}, freed",
        flags?,
        device_pointer? == block as CUdeviceptr
    ))
}

fn registered_memory(driver: &Driver, _: CUdevice) -> Result<String, Failure> {
    let mut memory = vec![0_u8; 3 * BYTES];
    let offset = memory.as_ptr().align_offset(BYTES);
    let page = memory[offset..].as_mut_ptr().cast::<c_void>();
    // SAFETY: the page lies within the vector, which outlives the registration.
    unsafe {
        driver.mem_host_register(page, BYTES, 0)?;
        let again = driver.mem_host_register(page, BYTES, 0);
        driver.mem_host_unregister(page)?;
        match again {
            Err(again) => Ok(format!(
                "registered and unregistered; twice: {}",
                again.code().0
            )),
            Ok(()) => Err("it was registered twice".into()),
        }
    }
}

fn pointer_attributes(driver: &Driver, device: CUdevice) -> Result<String, Failure> {
    let block = managed(driver)?;
    let kind = driver.pointer_memory_type(block);
    let is_managed = driver.pointer_is_managed(block);
    let ordinal = driver.pointer_device_ordinal(block);
    let context = driver.pointer_context(block);
    let id = driver.pointer_buffer_id(block);
    // SAFETY: it was allocated above, and nothing uses it.
    unsafe { driver.mem_free(block) }?;
    check(is_managed?, "managed memory is said not to be")?;
    check(ordinal? == device, "it is of another device")?;
    check(
        context? == driver.ctx_get_current()?,
        "it is of another context",
    )?;
    let stack = 0_u32;
    let foreign = driver.pointer_memory_type((&raw const stack) as CUdeviceptr);
    let is_device = kind? == CUmemorytype::CU_MEMORYTYPE_DEVICE;
    Ok(format!(
        "managed memory is device memory: {is_device}, buffer id {}; of a stack pointer: {}",
        id?,
        foreign.map_or_else(|error| error.code().0.to_string(), |of| format!("{of:?}")),
    ))
}

fn sets_and_copies(driver: &Driver, _: CUdevice) -> Result<String, Failure> {
    let (one, other) = (driver.mem_alloc(BYTES)?, driver.mem_alloc(BYTES)?);
    let mut back = [0_u8; BYTES];
    let from = [3_u8; BYTES / 2];
    // SAFETY: both blocks and both arrays have as many bytes as are set and copied.
    unsafe {
        driver.memset_d8(one, 1, BYTES)?;
        driver.memset_d16(one, 0x0202, 16)?;
        driver.memset_d32(one, 0x0202_0202, 16)?;
        driver.memcpy_htod(one + 2048, from.as_ptr().cast(), from.len())?;
        driver.memcpy_dtod(other, one, BYTES)?;
        driver.memcpy(one, other, BYTES)?;
        driver.memcpy_dtoh(back.as_mut_ptr().cast(), one, BYTES)?;
        driver.mem_free(one)?;
        driver.mem_free(other)?;
    }
    let right = back[..64] == [2; 64] && back[64..2048] == [1; 1984] && back[2048..] == from;
    check(right, "other bytes came back")?;
    Ok("8, 16 and 32 bits; to the device, within it, and back".to_owned())
}

fn streams_and_events(driver: &Driver, _: CUdevice) -> Result<String, Failure> {
    let stream = driver.stream_create(CUstream_flags::CU_STREAM_NON_BLOCKING)?;
    let other = driver.stream_create_with_priority(CUstream_flags::CU_STREAM_NON_BLOCKING, 0)?;
    let start = driver.event_create(CUevent_flags::CU_EVENT_DEFAULT)?;
    let end = driver.event_create(CUevent_flags::CU_EVENT_DEFAULT)?;
    // SAFETY: all four are live until they are destroyed, once.
    unsafe {
        driver.event_record(start, stream)?;
        driver.stream_wait_event(other, start)?;
        driver.event_record(end, stream)?;
        driver.event_synchronize(end)?;
        driver.stream_synchronize(other)?;
        let ready = driver.event_query(end)? && driver.stream_query(stream)?;
        check(ready, "what was waited for is not ready")?;
        let context: CUcontext = driver.stream_get_ctx(stream)?;
        check(
            context == driver.ctx_get_current()?,
            "a stream of another context",
        )?;
        let milliseconds = driver.event_elapsed_time(start, end)?;
        driver.event_destroy(start)?;
        driver.event_destroy(end)?;
        driver.stream_destroy(stream)?;
        driver.stream_destroy(other)?;
        check(milliseconds >= 0.0, "time ran backwards")?;
    }
    Ok("made, recorded, waited for, destroyed".to_owned())
}

unsafe extern "C" fn set_to_one(data: *mut c_void) {
    // SAFETY: the stream's work hands on what was given with it, an integer that is waited for.
    unsafe { data.cast::<u32>().write(1) };
}

fn host_functions(driver: &Driver, _: CUdevice) -> Result<String, Failure> {
    let mut called = 0_u32;
    // SAFETY: the stream is waited for while the integer is there; the function doesn't unwind.
    unsafe {
        driver.launch_host_func(ptr::null_mut(), Some(set_to_one), (&raw mut called).cast())?;
        driver.ctx_synchronize()?;
    }
    // SAFETY: an integer of this function.
    let called = unsafe { (&raw const called).read_volatile() };
    check(called == 1, "the function was not called")?;
    Ok("called".to_owned())
}

fn stream_ordered_memory(driver: &Driver, _: CUdevice) -> Result<String, Failure> {
    let stream = driver.stream_create(CUstream_flags::CU_STREAM_NON_BLOCKING)?;
    // SAFETY: the stream is live until it is destroyed, and the block is used in stream order.
    unsafe {
        let block = driver.mem_alloc_async(BYTES, stream)?;
        driver.memset_d8_async(block, 1, BYTES, stream)?;
        driver.mem_free_async(block, stream)?;
        driver.stream_synchronize(stream)?;
        driver.stream_destroy(stream)?;
        Ok(format!(
            "a block at {block:#x}, set and freed in stream order"
        ))
    }
}

fn pools(driver: &Driver, device: CUdevice) -> Result<String, Failure> {
    let default = driver.device_get_default_mem_pool(device)?;
    check(
        driver.device_get_mem_pool(device)? == default,
        "another pool is chosen",
    )?;
    let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    let mut threshold = u64::MAX;
    // SAFETY: the pool is the device's own, and the attribute is a 64-bit integer.
    unsafe {
        driver.mem_pool_get_attribute(default, attribute, (&raw mut threshold).cast())?;
        driver.mem_pool_set_attribute(default, attribute, (&raw mut threshold).cast())?;
        let access = driver.mem_pool_get_access(default, CUmemLocation::device(device))?;
        driver.mem_pool_trim_to(default, 0)?;
        Ok(format!(
            "release threshold {threshold}, access {}, trimmed",
            access.0
        ))
    }
}

fn physical(device: CUdevice) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
        location: CUmemLocation::device(device),
        win32HandleMetaData: ptr::null_mut(),
        allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

/// Physical memory, mapped and writable: its address and bytes.
fn map(driver: &Driver, device: CUdevice) -> Result<(CUdeviceptr, usize), Failure> {
    let properties = physical(device);
    let bytes = driver.mem_get_allocation_granularity(
        &properties,
        CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM,
    )?;
    let handle = driver.mem_create(bytes, &properties)?;
    let address = driver.mem_address_reserve(bytes, 0, 0)?;
    let access = CUmemAccessDesc {
        location: CUmemLocation::device(device),
        flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    // SAFETY: the range is reserved and empty, the handle live. A handle may be given up once its
    // memory is mapped.
    unsafe {
        driver.mem_map(address, bytes, 0, handle)?;
        driver.mem_release(handle)?;
        driver.mem_set_access(address, bytes, &[access])?;
    }
    Ok((address, bytes))
}

fn virtual_memory(driver: &Driver, device: CUdevice) -> Result<String, Failure> {
    let (address, bytes) = map(driver, device)?;
    let access = driver.mem_get_access(&CUmemLocation::device(device), address)?;
    // SAFETY: the range is mapped, set, then waited for, unmapped, and freed as it was reserved.
    unsafe {
        driver.memset_d8(address, 1, bytes)?;
        driver.ctx_synchronize()?;
        driver.mem_unmap(address, bytes)?;
        driver.mem_address_free(address, bytes)?;
    }
    Ok(format!(
        "{bytes} bytes mapped at {address:#x}, access {}",
        access.0
    ))
}

fn unmap_without_context(driver: &Driver, device: CUdevice) -> Result<String, Failure> {
    let (address, bytes) = map(driver, device)?;
    let context = driver.ctx_pop_current()?;
    // SAFETY: nothing uses the range.
    let alone = unsafe { driver.mem_unmap(address, bytes) };
    // SAFETY: it was current before; the range is unmapped, now at the latest, and freed.
    unsafe {
        driver.ctx_push_current(context)?;
        if alone.is_err() {
            driver.mem_unmap(address, bytes)?;
        }
        driver.mem_address_free(address, bytes)?;
    }
    Ok(match alone {
        Ok(()) => "unmapping needs no current context".to_owned(),
        Err(error) => format!("unmapping needs a current context: {}", error.code().0),
    })
}

const ADD_ONE: &CStr = cr"
.version 6.0
.target sm_50
.address_size 64
.visible .entry add_one(.param .u64 words, .param .u32 count)
{
    .reg .pred %p1;
    .reg .b32 %r<6>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [words];
    ld.param.u32 %r1, [count];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r4, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r4, %r1;
    @%p1 bra done;
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r4, 4;
    add.s64 %rd2, %rd2, %rd3;
    ld.global.u32 %r5, [%rd2];
    add.s32 %r5, %r5, 1;
    st.global.u32 [%rd2], %r5;
done:
    ret;
}
";

fn kernels(driver: &Driver, _: CUdevice) -> Result<String, Failure> {
    let mut words: CUdeviceptr = driver.mem_alloc(BYTES)?;
    let mut count = (BYTES / 4) as u32;
    let mut back = [0_u32; BYTES / 4];
    let mut arguments = [(&raw mut words).cast(), (&raw mut count).cast()];
    // SAFETY: the text is whole; the kernel takes a pointer and a count, and stays within them; it is
    // waited for before the block is read and freed.
    unsafe {
        let module = driver.module_load_data(ADD_ONE.as_ptr().cast())?;
        let function = driver.module_get_function(module, c"add_one")?;
        driver.memset_d32(words, 41, BYTES / 4)?;
        let (grid, block) = ([count.div_ceil(128), 1, 1], [128, 1, 1]);
        driver.launch_kernel(function, grid, block, 0, ptr::null_mut(), &mut arguments)?;
        driver.ctx_synchronize()?;
        driver.memcpy_dtoh(back.as_mut_ptr().cast(), words, BYTES)?;
        driver.module_unload(module)?;
        driver.mem_free(words)?;
    }
    check(back == [42; BYTES / 4], "the kernel did something else")?;
    Ok(format!("{count} threads added one"))
}

fn wrong_ordinal(driver: &Driver, _: CUdevice) -> Result<String, Failure> {
    match driver.device_get(99) {
        Ok(_) => Err("there is a device 99".into()),
        Err(error) => Ok(error.to_string()),
    }
}

/// What the driver's look-up hands out for a C name at different versions.
fn look_up(driver: &Driver) {
    println!("\ncuGetProcAddress_v2, by the version that is asked for");
    if let Err(error) = driver.get_proc_address(c"cuInit", 2000) {
        println!("{error}");
        return;
    }
    let symbols: Vec<_> = driver.symbols().collect();
    for name in [
        c"cuMemFree",
        c"cuMemAlloc",
        c"cuMemAdvise",
        c"cuMemPrefetchAsync",
        c"cuCtxCreate",
        c"cuNoSuchFunction",
    ] {
        for version in [2000, 3020, 8000, 12010, 12020, 13000, 99000] {
            let answer = match driver.get_proc_address(name, version) {
                Err(error) => error.to_string(),
                Ok((found, status)) if found.is_null() => format!("null, status {}", status.0),
                Ok((found, _)) => symbols
                    .iter()
                    .find(|(_, of)| of.is_some_and(|(address, _)| address == found))
                    .map_or("a function that isn't bound", |(symbol, _)| symbol.name())
                    .to_owned(),
            };
            println!("{:20} {version:>5}  {answer}", name.to_string_lossy());
        }
    }
}
