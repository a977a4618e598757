//! The seeded faults: each an edit of scope-ring's text, and the model that must find it.

/// A seeded fault: an edit of scope-ring's text, and the model that must find it.
pub struct Mutant {
    pub name: &'static str,
    /// File of scope-ring.
    pub file: &'static str,
    /// Texts that stand there exactly once, and what takes their place.
    pub edits: &'static [(&'static str, &'static str)],
    /// Model that must find it.
    pub model: &'static str,
    /// Part of what the model says then.
    pub says: &'static str,
}

/// Loom's own words for two uses of the same bytes that nothing orders.
const RACE: &str = "Causality violation";

/// Not in the list, since another ordering covers them: `pin` relaxed (the entry's acquire has seen the same
/// words before), and `commit` or `seal` relaxed as long as the counters' release fence stands between the
/// bytes and the word. Those two fall together with the fence.
pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "no_generation_check",
        file: "protocol.rs",
        edits: &[("if now >> PIN_BITS != generation || now & PINS == PINS {", "if now & PINS == PINS {")],
        model: "recycle",
        says: RACE,
    },
    Mutant {
        name: "check_then_add",
        file: "protocol.rs",
        edits: &[(
            "        match word.compare_exchange_weak(now, now + 1, Ordering::Acquire, Ordering::Relaxed) {",
            "        now = word.fetch_add(1, Ordering::AcqRel);\n        match Ok::<u64, u64>(now) {",
        )],
        model: "recycle",
        says: RACE,
    },
    Mutant {
        name: "commit_relaxed",
        file: "protocol.rs",
        edits: &[
            (
                "control.committed.store(committed.to_word(), Ordering::Release); // bytes, entries and span before",
                "control.committed.store(committed.to_word(), Ordering::Relaxed); //",
            ),
            ("    fence(Ordering::Release); // the odd count", "    //"),
        ],
        model: "open_segment",
        says: RACE,
    },
    Mutant {
        name: "seal_relaxed",
        file: "protocol.rs",
        edits: &[
            (
                "control.committed.store(committed.to_word(), Ordering::Release); // foot, statistics",
                "control.committed.store(committed.to_word(), Ordering::Relaxed); //",
            ),
            ("    fence(Ordering::Release); // the odd count", "    //"),
        ],
        model: "open_segment",
        says: RACE,
    },
    Mutant {
        name: "committed_read_relaxed",
        file: "protocol.rs",
        edits: &[(
            "Committed::from_word(control.committed.load(Ordering::Acquire))",
            "Committed::from_word(control.committed.load(Ordering::Relaxed))",
        )],
        model: "open_segment",
        says: RACE,
    },
    Mutant {
        name: "unpin_relaxed",
        file: "protocol.rs",
        edits: &[("word.fetch_sub(1, Ordering::Release)", "word.fetch_sub(1, Ordering::Relaxed)")],
        model: "recycle",
        says: RACE,
    },
    Mutant {
        name: "claim_relaxed",
        file: "protocol.rs",
        edits: &[(
            "generation << PIN_BITS | 1, Ordering::AcqRel, Ordering::Relaxed)",
            "generation << PIN_BITS | 1, Ordering::Relaxed, Ordering::Relaxed)",
        )],
        model: "recycle",
        says: RACE,
    },
    Mutant {
        name: "claim_ignores_pins",
        file: "protocol.rs",
        edits: &[("    if now & PINS != 0 {\n        return None;\n    }\n", "")],
        model: "recycle",
        says: "a pin is given back once",
    },
    Mutant {
        name: "entry_read_relaxed",
        file: "protocol.rs",
        edits: &[("match entry.load(Ordering::Acquire) {", "match entry.load(Ordering::Relaxed) {")],
        model: "newest",
        says: RACE,
    },
    Mutant {
        name: "directory_relaxed",
        file: "protocol.rs",
        edits: &[(
            "entry.store(generation << PIN_BITS | slot as u64, Ordering::Release);",
            "entry.store(generation << PIN_BITS | slot as u64, Ordering::Relaxed);",
        )],
        model: "newest",
        says: RACE,
    },
    Mutant {
        name: "next_relaxed",
        file: "protocol.rs",
        edits: &[(
            "lane.next.store(start.sequence + 1, Ordering::Release);",
            "lane.next.store(start.sequence + 1, Ordering::Relaxed);",
        )],
        model: "unlapped",
        says: "missed without need",
    },
    Mutant {
        name: "reset_after_publish",
        file: "protocol.rs",
        edits: &[(
            "    control.committed.store(0, Ordering::Relaxed);\n    control.lane",
            "    entry.store(generation << PIN_BITS | slot as u64, Ordering::Release);\n    control.committed.store(0, Ordering::Relaxed);\n    control.lane",
        )],
        model: "newest",
        says: RACE,
    },
    Mutant {
        name: "no_owner_pin",
        file: "protocol.rs",
        edits: &[(
            "    Some(generation)\n",
            "    word.fetch_sub(1, Ordering::Release);\n    Some(generation)\n",
        )],
        model: "two_writers",
        says: "a pin is given back once",
    },
    Mutant {
        // SAFETY: a text, compiled into its variant only; loom sees every use of these bytes, and that
        // is the point.
        name: "committed_before_bytes",
        file: "writer.rs",
        edits: &[(
            "        let appended = self.stream.append(",
            "        if let Some(open) = &self.open {\n            let first = batch.packet(from);\n            let early = Committed { sealed: false, packets: self.stream.packets() + 1, bytes: self.stream.bytes() + first.head.block_bytes_of(first.data.len()) as u32 };\n            self.ring.region().segment(open.slot).committed.store(early.to_word(), Ordering::Release);\n        }\n        let appended = self.stream.append(",
        )],
        model: "open_segment",
        says: RACE,
    },
    Mutant {
        name: "sealed_before_foot",
        file: "writer.rs",
        edits: &[(
            "        self.stream.seal(",
            "        let early = Committed { sealed: true, packets: foot.packets, bytes: foot.block_bytes };\n        ring.region().segment(open.slot).committed.store(early.to_word(), Ordering::Release);\n        self.stream.seal(",
        )],
        model: "open_segment",
        says: RACE,
    },
    Mutant {
        name: "times_after_sealed_bit",
        file: "protocol.rs",
        edits: &[(
            "    control.times[0].store(times.first_ns",
            "    control.committed.store(committed.to_word(), Ordering::Release);\n    control.times[0].store(times.first_ns",
        )],
        model: "open_segment",
        says: "times",
    },
    Mutant {
        name: "split_commit_word",
        file: "protocol.rs",
        edits: &[(
            "    control.committed.store(committed.to_word(), Ordering::Release); // bytes, entries",
            "    let half = control.committed.load(Ordering::Relaxed) & !0xffff_ffff | committed.bytes as u64;\n    control.committed.store(half, Ordering::Release);\n    control.committed.store(committed.to_word(), Ordering::Release); //",
        )],
        model: "open_segment",
        says: "bytes and packets disagree",
    },
    Mutant {
        name: "visible_before_counted",
        file: "protocol.rs",
        edits: &[(
            "    lane.publish(published); // counted",
            "    control.committed.store(committed.to_word(), Ordering::Release);\n    lane.publish(published); //",
        )],
        model: "published",
        says: "seen before it was published",
    },
    Mutant {
        name: "count_begun_without_fence",
        file: "protocol.rs",
        edits: &[("    fence(Ordering::Release); // the odd count", "    //")],
        model: "counters",
        says: "numbers of two moments",
    },
    Mutant {
        name: "count_ended_relaxed",
        file: "protocol.rs",
        edits: &[("turn.store(began + 2, Ordering::Release);", "turn.store(began + 2, Ordering::Relaxed);")],
        model: "counters",
        says: "numbers of two moments",
    },
    Mutant {
        name: "snapshot_without_fence",
        file: "protocol.rs",
        edits: &[("        fence(Ordering::Acquire); // the values", "        //")],
        model: "counters",
        says: "numbers of two moments",
    },
    Mutant {
        name: "snapshot_never_looks_again",
        file: "protocol.rs",
        edits: &[("if before & 1 == 0 && turn.load(Ordering::Relaxed) == before {", "if before & 1 == 0 {")],
        model: "counters",
        says: "numbers of two moments",
    },
    Mutant {
        name: "remembered_after_the_claim",
        file: "ring.rs",
        edits: &[(
            "        let mut memory = self.memory.lock().expect(\"no panic while held\");\n        let generation = protocol::claim(&control.word)?;",
            "        let generation = protocol::claim(&control.word)?;\n        let mut memory = self.memory.lock().expect(\"no panic while held\");",
        )],
        model: "evicted",
        says: "recycled, and not remembered",
    },
    Mutant {
        name: "clock_relaxed",
        file: "ring.rs",
        edits: &[(
            "control.clock_ns.store(clock_ns, Ordering::Release);",
            "control.clock_ns.store(clock_ns, Ordering::Relaxed);",
        )],
        model: "clock",
        says: "that the clock speaks of",
    },
    Mutant {
        name: "lane_table_relaxed",
        file: "ring.rs",
        edits: &[(
            "header.lanes_used.store(lane + 1, Ordering::Release);",
            "header.lanes_used.store(lane + 1, Ordering::Relaxed);",
        )],
        model: "lanes",
        says: "a lane without its words",
    },
    Mutant {
        name: "next_read_before_published",
        file: "reader/cursor.rs",
        edits: &[(
            "        let published = ring.region().lane(lane).published().packets; // looked at first: these lie in segments below `next`\n        let next = ring.lane_next(lane);",
            "        let next = ring.lane_next(lane);\n        let published = ring.region().lane(lane).published().packets;",
        )],
        model: "reader",
        says: "foreign bytes",
    },
    Mutant {
        name: "missed_not_counted",
        file: "reader/cursor.rs",
        edits: &[("        self.missed += packets;\n", "")],
        model: "reader",
        says: "published = seen + missed + behind",
    },
    Mutant {
        name: "span_after_commit",
        file: "protocol.rs",
        edits: &[
            ("    publish_span(control, span);\n    lane.publish", "    lane.publish"),
            (
                "// bytes, entries and span before the word that publishes them\n",
                "\n    publish_span(control, span);\n",
            ),
        ],
        model: "span",
        says: "committed outside of the span",
    },
    Mutant {
        name: "table_before_newest",
        file: "search/time.rs",
        edits: &[
            (
                "let mut spans: Vec<SegmentSpan> = newest.filter_map(touching).collect();",
                "let mut spans: Vec<SegmentSpan> = Vec::new();",
            ),
            (
                "        spans.sort_by_key(|span| span.segment);\n",
                "        spans.extend(newest.filter_map(touching));\n        spans.sort_by_key(|span| span.segment);\n",
            ),
        ],
        model: "find",
        says: "not found",
    },
    Mutant {
        name: "slot_pinned_without_a_look_at_what_it_holds",
        file: "protocol.rs",
        edits: &[(
            "    control.lane.load(Ordering::Relaxed) == lane && control.sequence.load(Ordering::Relaxed) == sequence",
            "    control.lane.load(Ordering::Relaxed) == lane",
        )],
        model: "find_lapped",
        says: "passed over",
    },
    Mutant {
        name: "claim_of_any_group",
        file: "claims.rs",
        edits: &[("let queue = &mut self.queues[group.0 as usize];", "let queue = &mut self.queues[0];")],
        model: "shares",
        says: "evicted by another group",
    },
    Mutant {
        name: "lane_group_after_the_lane_table",
        file: "ring.rs",
        edits: &[
            ("        self.lane_groups[lane as usize].store(group.0, Ordering::Relaxed);\n", ""),
            (
                "        header.lanes_used.store(lane + 1, Ordering::Release); // after the lane's words\n",
                "        header.lanes_used.store(lane + 1, Ordering::Release);\n        self.lane_groups[lane as usize].store(group.0, Ordering::Relaxed);\n",
            ),
        ],
        model: "lanes",
        says: "a lane without its group",
    },
    Mutant {
        name: "claimed_by_who_looked_without_the_lock",
        file: "reader/group.rs",
        edits: &[(
            "        let pinned =\n            (claims.next.max(",
            "        let seen_next = own.next.load(Ordering::Acquire);\n        drop(claims);\n        claims = own.claims.lock().expect(\"no panic while held\");\n        let pinned =\n            (seen_next.max(",
        )],
        model: "members",
        says: "each to one member",
    },
    Mutant {
        name: "group_looks_at_published_last",
        file: "reader/group.rs",
        edits: &[(
            "        let published = ring.region().lane(lane).published().packets; // looked at first: these lie in segments below `end`\n        let end = ring.lane_next(lane);\n",
            "        let end = ring.lane_next(lane);\n        let published = ring.region().lane(lane).published().packets;\n",
        )],
        model: "members_lapped",
        says: "missed",
    },
    Mutant {
        name: "summary_of_an_open_segment",
        file: "summary.rs",
        edits: &[("        if committed.sealed {\n", "        if committed.packets > 0 {\n")],
        model: "summaries",
        says: "denied",
    },
    Mutant {
        name: "summary_of_whatever_the_slot_held",
        file: "summary.rs",
        edits: &[("self.of == Some(pinned.id())", "self.of.is_some()")],
        model: "summaries_lapped",
        says: "denied",
    },
    Mutant {
        name: "outside_commit_relaxed",
        file: "protocol.rs",
        edits: &[
            (
                "control.committed.store(committed.to_word(), Ordering::Release); // bytes, entries and span before",
                "control.committed.store(committed.to_word(), Ordering::Relaxed); //",
            ),
            ("    fence(Ordering::Release); // the odd count", "    //"),
        ],
        model: "outside_open",
        says: "a ring that tells the truth",
    },
    Mutant {
        name: "outside_forgets_its_packet",
        file: "outside/mod.rs",
        edits: &[("        place.packet = place.packet.saturating_add(u64::from(packets));\n", "")],
        model: "outside_open",
        says: "read or missed",
    },
    Mutant {
        name: "outside_leaves_an_open_segment",
        file: "outside/mod.rs",
        edits: &[(
            "                if !committed.sealed {\n                    return Ok(None);\n                }\n",
            "",
        )],
        model: "outside_open",
        says: "read or missed",
    },
    Mutant {
        name: "outside_takes_any_generation",
        file: "protocol.rs",
        edits: &[(
            "    fence(Ordering::Acquire); // what was read before the word\n    is_at(word, generation)",
            "    is_at(word, generation) || true",
        )],
        model: "outside_lapped",
        says: "foreign bytes",
    },
    Mutant {
        name: "claim_without_fence",
        file: "protocol.rs",
        edits: &[("    fence(Ordering::Release); // for readers that copy without a pin", "    //")],
        model: "outside_lapped",
        says: "foreign bytes",
    },
    Mutant {
        name: "outside_looks_again_without_fence",
        file: "protocol.rs",
        edits: &[("    fence(Ordering::Acquire); // what was read before the word\n", "")],
        model: "outside_lapped",
        says: "foreign bytes",
    },
    Mutant {
        name: "outside_lapped_without_counting",
        file: "outside/mod.rs",
        edits: &[("        self.missed = self.missed.saturating_add(missed);\n", "")],
        model: "outside_lapped",
        says: "read or missed",
    },
    Mutant {
        name: "held_by_the_generation_of_now",
        file: "outside/mod.rs",
        edits: &[(
            "control.generation.load(Ordering::Acquire), // before the words that it stands for",
            "control.word.load(Ordering::Acquire) >> crate::control::PIN_BITS,",
        )],
        model: "outside_held",
        says: "a ring that tells the truth",
    },
    Mutant {
        name: "held_by_a_generation_before_its_words",
        file: "protocol.rs",
        edits: &[(
            "    control.generation.store(generation, Ordering::Release); // for who finds the slot",
            "    control.generation.store(generation, Ordering::Relaxed); // for who finds the slot",
        )],
        model: "outside_held",
        says: "a ring that tells the truth",
    },
];
