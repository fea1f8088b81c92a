//! Buffers to and from cudarc, without copying. Needs a `libcuda` on the loader's path, which may be
//! the simulated one.
//!
//! ```text
//! cargo run -p cumem --example cudarc --features cudarc
//! ```

use cudarc::driver::CudaContext;
use cumem::interop::{Adopted, lend};
use cumem::sys::Driver;
use cumem::{Buffer, UnifiedBackend};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let driver = match Driver::load() {
        Ok(driver) => driver,
        Err(error) => {
            println!("cudarc finds no driver here either: {error}");
            return Ok(());
        }
    };
    let context = CudaContext::new(0)?;
    let stream = context.default_stream();

    // A buffer of ours, in cudarc's hands for a while.
    let backend = UnifiedBackend::new().with_driver(driver.clone());
    let buffer = Buffer::<f32, _>::zeroed(4, &backend)?;
    // SAFETY: both crates loaded `libcuda`, and the stream is of the device's primary context.
    let (buffer, copied) = unsafe {
        lend(buffer, &stream, |mut view| {
            stream.memcpy_htod(&[1.0, 2.0, 3.0, 4.0], &mut view)
        })
    }?;
    copied?;
    println!("cudarc wrote {:?}", buffer.to_vec()?);

    // A slice of cudarc's, as a buffer of ours for a while.
    // SAFETY: both crates loaded `libcuda`.
    let adopted = unsafe { Adopted::new(&driver, &stream) };
    let buffer = adopted.adopt(stream.clone_htod(&[5.0_f32, 6.0])?)?;
    println!("cudarc's slice has {:?}", buffer.to_vec()?);
    match adopted.give_back(buffer) {
        Ok(slice) => println!("and is cudarc's again, with {} elements", slice.len()),
        Err(buffer) => println!("not adopted: {buffer:?}"),
    }
    Ok(())
}
