//! What `tracing` and `metrics` hear of.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use cumem::policy::{Metered, Traced};
use cumem::sys::CUresult;
use cumem::{Allocation, Backend, Unified, buckets_for};
use cumem_sim::{Fault, Sim};

type Small = Backend<Unified, { buckets_for(16) }>;

/// Notes each event as "LEVEL target field=value ...".
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Notes {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                write!(self.0, " {}={value:?}", field.name()).unwrap();
            }
        }
        let metadata = event.metadata();
        let mut text = Text(format!("{} {}", metadata.level(), metadata.target()));
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn tracing_hears_of_everything_and_of_failed_drops_as_a_warning() {
    let sim = Sim::new();
    let backend = Traced::new(Small::with_capacity(16).with_driver(sim.driver().unwrap()));
    let notes = Notes::default();
    tracing::subscriber::with_default(notes.clone(), || {
        drop(Allocation::new_in(&backend, 64, 1).unwrap());
        assert!(Allocation::new_in(&backend, 0, 1).is_err());
        let block = Allocation::new_in(&backend, 64, 1).unwrap();
        sim.inject(Fault::once("cuMemFree_v2", CUresult::CUDA_ERROR_UNKNOWN));
        drop(block);
    });
    let notes = notes.0.lock().unwrap();
    let expected = [
        ("DEBUG cumem", "allocated"),
        ("DEBUG cumem", "released"),
        ("WARN cumem", "allocation failed"),
        ("DEBUG cumem", "allocated"),
        ("WARN cumem", "release failed"),
    ];
    assert_eq!(notes.len(), expected.len());
    for (note, (start, message)) in notes.iter().zip(expected) {
        assert!(note.starts_with(start), "{note}");
        assert!(note.contains(&format!("message={message}")), "{note}");
        assert!(note.contains("kind=\"unified\" device=0"), "{note}");
    }
    assert!(notes[0].contains("observation.rs:"), "{}", notes[0]);
    assert!(notes[4].contains("CUDA_ERROR_UNKNOWN"), "{}", notes[4]);
}

/// Keeps every counter, and the gauge as whole numbers.
#[derive(Default)]
struct Numbers(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl Numbers {
    fn number(&self, key: &metrics::Key) -> Arc<AtomicU64> {
        let labels: Vec<_> = key.labels().map(|label| label.value()).collect();
        let name = format!("{} {}", key.name(), labels.join(" "));
        Arc::clone(self.0.lock().unwrap().entry(name).or_default())
    }

    fn get(&self, name: &str) -> u64 {
        self.0.lock().unwrap()[name].load(Ordering::SeqCst)
    }
}

impl metrics::Recorder for Numbers {
    fn describe_counter(
        &self,
        _: metrics::KeyName,
        _: Option<metrics::Unit>,
        _: metrics::SharedString,
    ) {
    }
    fn describe_gauge(
        &self,
        _: metrics::KeyName,
        _: Option<metrics::Unit>,
        _: metrics::SharedString,
    ) {
    }
    fn describe_histogram(
        &self,
        _: metrics::KeyName,
        _: Option<metrics::Unit>,
        _: metrics::SharedString,
    ) {
    }
    fn register_counter(&self, key: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Counter {
        metrics::Counter::from_arc(self.number(key))
    }
    fn register_gauge(&self, key: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Gauge {
        metrics::Gauge::from_arc(self.number(key))
    }
    fn register_histogram(
        &self,
        _: &metrics::Key,
        _: &metrics::Metadata<'_>,
    ) -> metrics::Histogram {
        metrics::Histogram::noop()
    }
}

#[test]
fn metrics_count_what_happened() {
    let sim = Sim::new();
    let numbers = Numbers::default();
    metrics::with_local_recorder(&numbers, || {
        let inner = Small::with_capacity(16).with_driver(sim.driver().unwrap());
        let backend = Metered::new(inner);
        drop(Allocation::new_in(&backend, 64, 1).unwrap());
        assert!(Allocation::new_in(&backend, 0, 1).is_err());
        let block = Allocation::new_in(&backend, 100, 1).unwrap();
        sim.inject(Fault::once("cuMemFree_v2", CUresult::CUDA_ERROR_UNKNOWN));
        drop(block);
    });
    let of = |name: &str| numbers.get(&format!("cumem_{name} unified 0"));
    assert_eq!(of("allocations_total"), 2);
    assert_eq!(of("allocated_bytes_total"), 164);
    assert_eq!(of("allocation_failures_total"), 1);
    assert_eq!(of("releases_total"), 1);
    assert_eq!(of("release_failures_total"), 1);
    assert_eq!(
        f64::from_bits(of("live_bytes")),
        100.0,
        "the refused block is live"
    );
}
