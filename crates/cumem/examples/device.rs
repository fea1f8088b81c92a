//! Plain device memory, which the host can't touch: copy there and back.
//!
//! ```text
//! cargo run -p cumem --example device
//! ```

use cumem::{Buffer, DeviceBackend};

mod support;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backend = DeviceBackend::new().with_driver(support::driver()?);
    let mut matrix = Buffer::<f32, _>::zeroed(4 * 4, &backend)?;
    for row in 0..4 {
        // The diagonal, one element at a time: each view is a part of the buffer.
        matrix
            .slice_mut(row * 4 + row..)
            .slice(..1)
            .copy_from_slice(&[1.0])?;
    }
    let (top, bottom) = matrix.split_at(8);
    println!("{:?}\n{:?}", top.to_vec()?, bottom.to_vec()?);
    println!(
        "{}",
        matrix.as_slice().expect_err("the host can't touch it")
    );
    Ok(())
}
