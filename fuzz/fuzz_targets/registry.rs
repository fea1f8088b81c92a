//! Operations that the fuzzer makes up, against a map that can't be wrong.
#![no_main]

use arbitrary::{Arbitrary, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use ptr_registry::SLOTS_PER_BUCKET;

#[path = "../../crates/ptr-registry/tests/support/mod.rs"]
mod support;

use support::{BUCKETS, Ending, Op, Pattern, run};

#[derive(Debug)]
struct Input {
    pattern: Pattern,
    capacity: usize,
    ops: Vec<Op>,
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let pattern = match u.int_in_range(0..=3)? {
            0 => Pattern::Steps {
                base: u.arbitrary()?,
                shift: u.int_in_range(0..=39)?,
            },
            1 => Pattern::Scattered {
                seed: u.arbitrary()?,
            },
            2 => Pattern::Colliding,
            _ => Pattern::Extremes,
        };
        let capacity = u.int_in_range(0..=BUCKETS * SLOTS_PER_BUCKET)?;
        let mut ops = Vec::new();
        while !u.is_empty() && ops.len() < 2000 {
            ops.push(op(u)?);
        }
        Ok(Self {
            pattern,
            capacity,
            ops,
        })
    }
}

fn op(u: &mut Unstructured<'_>) -> Result<Op> {
    Ok(match u.int_in_range(0..=9)? {
        0..=2 => Op::Register(u.arbitrary()?),
        3 => Op::Unregister(u.arbitrary()?),
        4 => Op::Look(u.arbitrary()?),
        5 => Op::Claim(u.arbitrary()?),
        6 => Op::End(ending(u)?),
        7 => Op::Iterate,
        8 => Op::Drain(u.int_in_range(0..=3)?),
        _ => Op::ClaimAll(ending(u)?),
    })
}

fn ending(u: &mut Unstructured<'_>) -> Result<Ending> {
    u.choose(&[
        Ending::Remove,
        Ending::Restore,
        Ending::RestoreWith,
        Ending::Drop,
    ])
    .copied()
}

fuzz_target!(|input: Input| run(input.pattern, input.capacity, &input.ops));
