//! Arbitrary operations on arbitrary address patterns, against a map that can't be wrong.

mod support;

use proptest::prelude::*;
use ptr_registry::SLOTS_PER_BUCKET;
use support::{BUCKETS, Ending, Op, Pattern, run};

fn ending() -> impl Strategy<Value = Ending> {
    prop_oneof![
        Just(Ending::Remove),
        Just(Ending::Restore),
        Just(Ending::RestoreWith),
        Just(Ending::Drop),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        10 => any::<u8>().prop_map(Op::Register),
        6 => any::<u8>().prop_map(Op::Unregister),
        4 => any::<u8>().prop_map(Op::Look),
        4 => any::<u8>().prop_map(Op::Claim),
        4 => ending().prop_map(Op::End),
        1 => Just(Op::Iterate),
        1 => (0..4_u8).prop_map(Op::Drain),
        1 => ending().prop_map(Op::ClaimAll),
    ]
}

fn pattern() -> impl Strategy<Value = Pattern> {
    prop_oneof![
        (any::<usize>(), 0..40_u8).prop_map(|(base, shift)| Pattern::Steps { base, shift }),
        any::<u64>().prop_map(|seed| Pattern::Scattered { seed }),
        Just(Pattern::Colliding),
        Just(Pattern::Extremes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 8 } else { 400 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_registry_answers_like_a_map(
        pattern in pattern(),
        capacity in 0..=BUCKETS * SLOTS_PER_BUCKET,
        ops in prop::collection::vec(op(), 0..400),
    ) {
        run(pattern, capacity, &ops);
    }
}
