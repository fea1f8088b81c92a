//! One thread: every operation, pattern, capacity and load.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::Row;
use super::measure::{Batch, in_turns};
use super::patterns::{Dice, Pattern};
use super::tables::{NAMES, Table};
use crate::for_each_table;

/// Addresses that one batch goes through in turn.
const POOL: usize = 512;

/// How full a table is.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// An eighth.
    Eighth,
    /// A half.
    Half,
    /// Seven eighths.
    SevenEighths,
    /// To the last slot.
    Full,
}

impl Load {
    /// Pointers that are live at this load.
    #[must_use]
    pub fn of(self, capacity: usize) -> usize {
        match self {
            Self::Eighth => capacity / 8,
            Self::Half => capacity / 2,
            Self::SevenEighths => capacity / 8 * 7,
            Self::Full => capacity,
        }
    }
}

/// One point of the grid.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Where the addresses lie.
    pub pattern: Pattern,
    /// Pointers that the tables are made for.
    pub capacity: usize,
    /// How full they are.
    pub load: Load,
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Interleaved rounds.
    pub rounds: usize,
    /// Time for one batch.
    pub batch: Duration,
}

impl Point {
    /// Measures all operations on all tables.
    ///
    /// - `hit` and `unknown` look up addresses in arbitrary order.
    /// - `pair` registers an address and takes it out again; in a full table it takes one out and
    ///   registers it again, which is the only pair that there is.
    /// - `replace` takes an arbitrary live address out and registers one that was out: a table in
    ///   steady use, where removals have left their holes. It comes last, and it runs for a while
    ///   before it is measured.
    #[must_use]
    pub fn measure(self, effort: Effort) -> Vec<Row> {
        let live = self.load.of(self.capacity);
        let full = live == self.capacity;
        let mut dice = Dice::new(live as u64);
        let addresses: Vec<usize> = (0..live + 2 * POOL)
            .map(|n| self.pattern.address(n))
            .collect();
        let (inside, outside) = addresses.split_at(live);
        let mut shuffled = inside.to_vec();
        dice.shuffle(&mut shuffled);
        let mut hits: Vec<usize> = (0..POOL).map(|i| shuffled[i % live]).collect();
        dice.shuffle(&mut hits);
        let (fresh, unknown) = outside.split_at(POOL);

        let mut rows = Vec::new();
        let mut tables: Vec<(&'static str, Box<dyn DynTable>)> = Vec::new();
        for_each_table!(self.capacity, |name, table| tables.push((name, table)));
        for (_, table) in &tables {
            for key in inside {
                assert!(table.put(*key), "there is room for every key");
            }
        }
        let pairs = if full { &hits } else { fresh };
        for (op, keys) in [("hit", &hits[..]), ("unknown", unknown), ("pair", pairs)] {
            let mut batches: Vec<Batch<'_>> = tables
                .iter()
                .map(|(_, table)| table.batch(op, keys, full))
                .collect();
            let (ns, floor) = in_turns(&mut batches, effort.rounds, effort.batch);
            self.report(&mut rows, op, live, &ns, floor);
        }
        let mut batches: Vec<Batch<'_>> = tables
            .iter()
            .map(|(_, table)| table.replacement(inside.to_vec(), fresh.to_vec()))
            .collect();
        for (batch, name) in batches.iter_mut().zip(NAMES) {
            // The full scan is too slow to be brought into a steady state at every size.
            batch(if name == "full-scan" { 500 } else { 2 * live });
        }
        let (ns, floor) = in_turns(&mut batches, effort.rounds, effort.batch);
        self.report(&mut rows, "replace", live, &ns, floor);
        rows
    }

    fn report(self, rows: &mut Vec<Row>, op: &'static str, live: usize, ns: &[f64], floor: f64) {
        for (table, &ns) in NAMES.into_iter().zip(ns) {
            rows.push(Row {
                op,
                pattern: self.pattern.name,
                capacity: self.capacity,
                live,
                threads: 1,
                table,
                ns,
                floor_ratio: ns / floor,
            });
        }
    }
}

/// A table behind a pointer: the call through it is paid once per batch, not per operation.
trait DynTable: Table {
    fn put(&self, key: usize) -> bool;
    fn batch<'a>(&'a self, op: &str, keys: &'a [usize], full: bool) -> Batch<'a>;
    fn replacement(&self, inside: Vec<usize>, outside: Vec<usize>) -> Batch<'_>;
}

impl<T: Table> DynTable for T {
    fn put(&self, key: usize) -> bool {
        self.register(key)
    }

    fn batch<'a>(&'a self, op: &str, keys: &'a [usize], full: bool) -> Batch<'a> {
        match (op, full) {
            ("pair", false) => repeat(keys, |key| {
                assert!(self.register(key));
                assert!(self.unregister(key));
            }),
            ("pair", true) => repeat(keys, |key| {
                assert!(self.unregister(key));
                assert!(self.register(key));
            }),
            _ => repeat(keys, |key| {
                black_box(self.find(key));
            }),
        }
    }

    fn replacement(&self, mut inside: Vec<usize>, mut outside: Vec<usize>) -> Batch<'_> {
        let mut dice = Dice::new(7);
        let mut next = 0;
        Box::new(move |times| {
            let start = Instant::now();
            for _ in 0..times {
                let out = dice.roll(inside.len());
                let slot = &mut outside[next];
                next = (next + 1) % POOL;
                std::mem::swap(&mut inside[out], slot);
                assert!(self.unregister(*slot));
                assert!(self.register(inside[out]));
            }
            start.elapsed()
        })
    }
}

/// Does `body` with one key after the other, round and round.
fn repeat<'a>(keys: &'a [usize], body: impl Fn(usize) + 'a) -> Batch<'a> {
    let mut keys = keys.iter().cycle();
    Box::new(move |times| {
        let start = Instant::now();
        for key in keys.by_ref().take(times) {
            body(*key);
        }
        start.elapsed()
    })
}
