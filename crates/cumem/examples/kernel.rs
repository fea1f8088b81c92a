//! A kernel over a unified buffer: PTX text that the driver compiles, so that no CUDA is needed to
//! build this. On the simulated driver it says why that can't run.
//!
//! ```text
//! cargo run -p cumem --example kernel
//! ```

use std::ffi::c_void;

use cumem::sys::{CUresult, Driver};
use cumem::{Buffer, UnifiedBackend};

mod support;

/// Doubles each of `len` numbers; any device of the last ten years takes it.
const DOUBLE: &std::ffi::CStr = c"
.version 6.0
.target sm_50
.address_size 64
.visible .entry double_all(.param .u64 data, .param .u32 len)
{
    .reg .pred %p;
    .reg .b32 %r<6>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [data];
    ld.param.u32 %r1, [len];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p, %r5, %r1;
    @%p bra DONE;
    cvta.to.global.u64 %rd1, %rd1;
    mul.wide.u32 %rd2, %r5, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r2, [%rd3];
    shl.b32 %r2, %r2, 1;
    st.global.u32 [%rd3], %r2;
DONE:
    ret;
}
";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let driver = support::driver()?;
    let backend = UnifiedBackend::new().with_driver(driver.clone());
    let mut numbers = Buffer::from_iter(0_u32..1000, &backend)?;

    let device = driver.device_get(0)?;
    let context = driver.device_primary_ctx_retain(device)?;
    // SAFETY: the context was just retained.
    unsafe { driver.ctx_push_current(context) }?;
    let outcome = double(&driver, &mut numbers);
    driver.ctx_pop_current()?;
    // SAFETY: the module is unloaded, and the backend has its own reference for its memory.
    unsafe { driver.device_primary_ctx_release(device) }?;

    match outcome {
        Ok(()) => {
            let doubled = numbers.to_vec()?;
            assert!(doubled.iter().copied().eq((0..1000).map(|n| n * 2)));
            println!("the kernel doubled 1000 numbers: {:?} ...", &doubled[..5]);
            Ok(())
        }
        Err(error) if error.code() == CUresult::CUDA_ERROR_NOT_SUPPORTED => {
            println!("no kernel can run here, for there is no device behind this driver: {error}");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

fn double<B: cumem::DriverBackend>(
    driver: &Driver,
    numbers: &mut Buffer<u32, B>,
) -> Result<(), cumem::sys::CuError> {
    // SAFETY: the image is PTX text that ends with a zero byte.
    let module = unsafe { driver.module_load_data(DOUBLE.as_ptr().cast()) }?;
    let done = (|| {
        // SAFETY: the module is loaded.
        let function = unsafe { driver.module_get_function(module, c"double_all") }?;
        let (mut data, mut len) = (numbers.device_ptr(), numbers.len() as u32);
        let mut arguments: [*mut c_void; 2] = [(&raw mut data).cast(), (&raw mut len).cast()];
        // SAFETY: the arguments are of the types that the kernel declares. It touches `len` numbers
        // from `data`, which are borrowed alone until it was waited for.
        unsafe {
            driver.launch_kernel(
                function,
                [len.div_ceil(256), 1, 1],
                [256, 1, 1],
                0,
                std::ptr::null_mut(),
                &mut arguments,
            )
        }?;
        driver.ctx_synchronize()
    })();
    // SAFETY: no kernel of the module runs.
    unsafe { driver.module_unload(module) }?;
    done
}
