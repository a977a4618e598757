#!/bin/sh
# Disassembles scope-ring's release build and checks in which order commit and seal store, on every path through them.
#
# The story: packets go to memory by non-temporal stores, which x86-64 may put behind later ones. An `sfence` sets that right.
# Then readers are let in by the committed word, 8 bytes at offset 8 of the segment's record (packets and bytes, put together by
# `or`). On x86-64 a release store is an ordinary one, so that the compiled code must show what the source promises:
#
#   1. an sfence leads to the store of the word, and between any sfence and that store no path has a non-temporal store. (There
#      are paths without sfence: where nothing was streamed, none is due. Whether the flag for that is right, tests must say.)
#   2. after the word nothing of the commit is stored: the lane's counters, under their sequence count, come before it. What
#      ends this is, in commit, the `lock cmpxchg` by which the waking of readers takes its own lock; in seal, the locked
#      give-back of the owner's pin at offset 0 of the record, which has to come. What follows is the segment's no more.
#   3. there are non-temporal stores: a check that recognises nothing fails.
#
# Paths are followed, not lines: falling through, jumps, calls and tail calls of scope-ring's functions, inlined or not. Calls
# that never return (panics) end a path. Functions from elsewhere stream nothing unfenced (memcpy fences itself); after the word
# those that fill memory count as stores. A call through a register may go to any function whose address the caller loads,
# a jump through one anywhere in its function.
# Stores to the stack, to statics and to a thread's own variables concern no reader.
#
# usage: check-fences.sh [libscope_ring.rlib]       without it, the release build in the target folder is made and taken
#        check-fences.sh --self-test                doctored disassemblies: faults must be found, right forms must pass
set -u
cd "$(dirname "$0")/.." || exit 2

# Reads a disassembly (objdump -d -r -C) and says what is right or wrong; 1 if anything is wrong.
judge() {
    awk '
    # --- reading: function f has instructions 1..count[f]; target[f, n] is the symbol that instruction n asks the linker for ---
    /^Disassembly of section / { section = $4; sub(/:$/, "", section); next }
    /^[0-9a-f]+ <.*>:$/ {
        own = $0; sub(/^[0-9a-f]+ </, "", own); sub(/>:$/, "", own)
        if (own ~ /^\.L/) next # a label inside of a function
        name[++f] = own
        bodies[own] = bodies[own] " " f # a generic function has one name and several bodies
        bodies[section] = bodies[section] " " f # local functions are called by their section
        next
    }
    f && /^[ \t]+[0-9a-f]+: R_X86_64_/ {
        symbol = $0
        sub(/^[ \t]+[0-9a-f]+: R_X86_64_[A-Z0-9_]+[ \t]+/, "", symbol); sub(/[-+]0x[0-9a-f]+$/, "", symbol)
        target[f, count[f]] = symbol
        next
    }
    f && /^ *[0-9a-f]+:[ \t]/ {
        address = $1; sub(/:$/, "", address)
        line = $0; sub(/^ *[0-9a-f]+:[ \t]*/, "", line); sub(/[ \t]+#.*$/, "", line); sub(/[ \t]+$/, "", line)
        place[f, address] = ++count[f]; where[f, count[f]] = address; text[f, count[f]] = line
        if (line ~ /^mov +%rsp,%rbp$/) framed[f] = 1
        if (is_streaming(line)) streaming++
    }

    # --- what an instruction is ---
    function is_streaming(line) { return line ~ /^v?(movnt(dq|i|il|iq|ps|pd|ss|sd|q)|maskmov(q|dqu)) / }
    function is_fence(line) { return line ~ /^[sm]fence/ }
    function is_locked(line) { return line ~ /^lock / || line ~ /^xchg .*\(/ }
    function is_jump(line) { return line ~ /^(notrack )?(bnd )?jmp/ }
    function is_branch(line) { return line ~ /^(j|loop)[a-z]* / && !is_jump(line) }
    # Nothing is behind it but what is jumped to.
    function is_end(line) { return line ~ /^(repz )?ret|^(ud2|int3|hlt)/ || is_jump(line) }
    # Writes memory that others may see: its last operand.
    function is_store(f, line) {
        sub(/[{]%k[0-7][}]$/, "", line)
        if (line !~ /\([^()]*\)$/ || line ~ /[%](fs|gs):[^,]*$/ || line ~ /\(%([re]sp|rip)[^()]*\)$/) return 0
        if (framed[f] && line ~ /\(%rbp[^()]*\)$/) return 0
        return line !~ /^((cmp|test|bt|nop|push|call|i?mul|i?div)[bwlq]?|(notrack )?(bnd )?jmp|prefetch[a-z0-9]*|clflush[a-z]*) /
    }
    # A 64-bit register to offset 8 of something that is not the stack, and what made its value is `or` (or `bts`).
    function is_word(f, n,    line, full, half) {
        line = text[f, n]
        if (line !~ /^mov +%r([a-z][a-z]|[89]|1[0-5]),0x8\(%/ || !is_store(f, line)) return 0
        full = line; sub(/^mov +/, "", full); sub(/,.*/, "", full)
        half = full
        if (!sub(/[0-9]$/, "&d", half)) sub(/r/, "e", half)
        while (--n > 0) {
            line = text[f, n]
            if (line ~ "[ ,](" full "|" half ")$" && line !~ /^(cmp|test|push)/) return line ~ /^(or|bts)[lq]? /
        }
        return 0
    }
    # The same in both spellings of demanglers: <a::B>::c and a::B::c.
    function plain(symbol) { gsub(/[<>]/, "", symbol); return symbol }
    function never_returns(symbol) {
        symbol = plain(symbol)
        if (symbol ~ /^core::(panicking::|(option|result|slice|cell|str)::.*(_fail|panic_))/) return 1
        return symbol ~ /^alloc::.*::handle_(alloc_)?error/ || symbol == "_Unwind_Resume"
    }
    function fills_memory(symbol) { return symbol ~ /^mem(cpy|move|set)$/ }

    # --- paths. Each is in one state:
    #     N  no sfence yet          F  after an sfence, nothing streamed since      D  streamed since the sfence
    #     W  the word is stored     E  and what may follow it has begun
    function complain(f, n, what,    words) {
        words = step ": " what " (" name[f] " " where[f, n] ": " text[f, n] ")"
        if (words in said) return
        said[words] = 1; wrong++
        print words
    }
    function union(some, more,    all, i, letter) {
        for (i = 1; i <= 5; i++) {
            letter = substr("NFDWE", i, 1)
            if (index(some more, letter)) all = all letter
        }
        return all
    }
    # The states after instruction n in state s; none if it never returns.
    function after(f, n, s,    line) {
        line = text[f, n]
        if (line ~ /^call/ || target[f, n] != "" && (is_jump(line) || is_branch(line))) return called(f, n, s, target[f, n])
        if (s == "W") return after_word(f, n, line)
        if (is_fence(line)) return "F"
        if (is_streaming(line)) return s == "F" ? "D" : s
        return is_word(f, n) ? word_stored(f, n, s) : s
    }
    function word_stored(f, n, s) {
        if (s == "D") complain(f, n, "a non-temporal store lies between an sfence and the committed word")
        stored[step] = 1
        if (s != "N") fenced[step] = 1
        return "W"
    }
    function after_word(f, n, line) {
        if (is_locked(line)) {
            if (line ~ (step == "seal" ? "^lock (xadd|add|sub|dec)[lq]? +([^,]*,)?[(]%r[^()]*[)]$" : "^lock cmpxchg ")) return "E"
            complain(f, n, "a locked store after the committed word")
        } else if (is_store(f, line)) complain(f, n, "a store after the committed word")
        return "W"
    }
    function called(f, n, s, symbol,    ends, at) {
        if (symbol != "") {
            if (s == "W" && fills_memory(symbol)) complain(f, n, "a store after the committed word, by " symbol)
            return never_returns(symbol) ? "" : through_any(symbol, s)
        }
        ends = s # through a register
        for (at = 1; at <= count[f]; at++)
            if (text[f, at] ~ /^(mov|lea)/ && target[f, at] in bodies) ends = union(ends, through_any(target[f, at], s))
        return ends
    }
    # Through every body of a function; one from elsewhere changes nothing.
    function through_any(symbol, s,    list, i, ends) {
        if (!(symbol in bodies)) return s
        for (i = split(bodies[symbol], list, " "); i > 0; i--) ends = union(ends, through(list[i] + 0, s))
        return ends
    }
    # Where control goes from instruction n: instructions, and "return".
    function successors(f, n,    line, to, at) {
        line = text[f, n]
        if (line ~ /^(repz )?ret/) return "return"
        if (is_jump(line) || is_branch(line)) {
            if (target[f, n] != "") to = "return" # a tail call
            else if (line ~ /\*/) return anywhere(f)
            else {
                at = line; sub(/^.*(jmp|loop|j)[a-z]* +/, "", at); sub(/[^0-9a-f].*/, "", at)
                if ((f, at) in place) to = place[f, at]
                else complain(f, n, "a jump that can not be followed")
            }
        }
        return is_end(line) || n == count[f] ? to : to " " (n + 1)
    }
    # By a jump through a register: to whatever is not fallen into, or out of the function.
    function anywhere(f,    to, n) {
        to = "return"
        for (n = 1; n < count[f]; n++) if (is_end(text[f, n])) to = to " " (n + 1)
        return to
    }
    function may_return(f, start, s) {
        if (index(returned[step, f, start], s)) return
        returned[step, f, start] = union(returned[step, f, start], s)
        grew = 1
    }
    # Every path through function f from its start in one state: the states in which it returns, or in which a path has come to
    # its end `E`. A function that calls itself finds there what is known so far; rounds are walked until nothing is new.
    function through(f, start,    seen, todo, waiting, pair, to, states, n, s, i, k) {
        if (walked[f, start] == round) return returned[step, f, start]
        walked[f, start] = round
        todo[waiting = 1] = 1 " " start
        while (waiting) {
            split(todo[waiting--], pair, " "); n = pair[1] + 0
            states = after(f, n, pair[2])
            split("", to)
            k = split(successors(f, n), to, " ")
            for (i = 1; i <= length(states); i++) {
                s = substr(states, i, 1)
                if (s == "E") may_return(f, start, s)
                else for (n = 1; n <= k; n++) {
                    if (to[n] == "return") may_return(f, start, s)
                    else if (!((to[n], s) in seen)) { seen[to[n], s] = 1; todo[++waiting] = to[n] " " s }
                }
            }
        }
        return returned[step, f, start]
    }

    # --- the verdict ---
    function check(wanted,    f, ends, before) {
        step = wanted; before = wrong
        do {
            grew = 0; round++
            for (f in name) if (plain(name[f]) == "scope_ring::writer::LaneWriter::" step) ends = union(ends, through(f + 0, "N"))
        } while (grew)
        if (!stored[step]) fail("no store of the committed word was found")
        else if (!fenced[step]) fail("no sfence leads to the committed word")
        if (step == "seal" && ends ~ /W/) fail("a path does not give the pin back after the committed word")
        if (wrong == before) print step ": an sfence leads to the committed word, nothing is streamed between or stored after"
    }
    function fail(what) { print step ": " what; wrong++ }
    END {
        check("commit")
        check("seal")
        if (!streaming) { print "no non-temporal stores were found"; wrong++ }
        else print streaming " non-temporal stores"
        exit wrong > 0
    }'
}

# A commit and a seal as compilers make them. Marked places are doctored by the cases below.
sample() {
    cat <<'END'
Disassembly of section .text.commit:

0000000000000000 <scope_ring::writer::LaneWriter::commit>:
   0:	cmpb   $0x2,0x84(%rdi)
   7:	je     1f <scope_ring::writer::LaneWriter::commit+0x1f>
   9:	test   %al,%al			# the choice of commit
   b:	jne    60 <scope_ring::writer::LaneWriter::commit+0x60>
   d:	mov    %rdx,0x78(%rdi)
  11:	mov    0x8(%r8,%r10,1),%rbx
  16:	lea    0x1(%rbx),%r14
  1a:	jmp    20 <scope_ring::writer::LaneWriter::commit+0x20>
  1f:	ret
  20:	mov    %r14,0x8(%r8,%r10,1)
  25:	mov    %r9,0x10(%r8,%r10,1)
  2a:	add    $0x2,%rbx
  2e:	mov    %rbx,0x8(%r8,%r10,1)
  33:	shl    $0x20,%rdx
  37:	or     %rdx,%rcx
  3a:	mov    %rcx,0x8(%rsi,%r11,1)	# the word of commit
  3f:	nop				# behind the word of commit
  44:	mov    %rax,0x8(%rsp)
  49:	jmp    4e <scope_ring::writer::LaneWriter::commit+0x4e>
			4a: R_X86_64_PLT32	scope_ring::ring::Ring::wake-0x4
  60:	call   65 <scope_ring::writer::LaneWriter::commit+0x65>
			61: R_X86_64_PLT32	.text.publish-0x4
  65:	cmpb   $0x0,0x80(%rbx)
  6c:	je     d <scope_ring::writer::LaneWriter::commit+0xd>
  6e:	sfence				# of commit
  71:	nop				# behind the sfence of commit
  76:	movb   $0x0,0x80(%rbx)
  7d:	jmp    d <scope_ring::writer::LaneWriter::commit+0xd>

Disassembly of section .text.publish:

0000000000000000 <scope_ring::stream::entries::Entries::publish>:
   0:	movntdq %xmm0,(%rdi)
   4:	ret

Disassembly of section .text.wake:

0000000000000000 <scope_ring::ring::Ring::wake>:
   0:	mov    0x3c(%r14),%eax
   4:	test   %eax,%eax
   6:	je     20 <scope_ring::ring::Ring::wake+0x20>
   8:	lock cmpxchg %ecx,0xe8(%rdi)
  10:	mov    %rax,0xf0(%rdi)
  18:	xchg   %eax,(%rbx)
  20:	ret

Disassembly of section .text.stream:

0000000000000000 <scope_ring::stream::Stream::seal>:
   0:	call   5 <scope_ring::stream::Stream::seal+0x5>
			1: R_X86_64_PLT32	scope_ring::stream::entries::Entries::publish-0x4
   5:	sfence				# of seal
   8:	call   *0x0(%rip)        # e <scope_ring::stream::Stream::seal+0xe>
			a: R_X86_64_GOTPCREL	memcpy-0x4
   e:	ret

Disassembly of section .text.seal:

0000000000000000 <<scope_ring::writer::LaneWriter>::seal>:
   0:	mov    0x0(%rip),%rbx        # 7 <<scope_ring::writer::LaneWriter>::seal+0x7>
			3: R_X86_64_GOTPCREL	scope_packet::pcapng::statistics-0x4
   7:	call   *%rbx
   9:	call   *0x0(%rip)        # f <<scope_ring::writer::LaneWriter>::seal+0xf>
			b: R_X86_64_GOTPCREL	scope_ring::stream::Stream::seal-0x4
   f:	nop				# behind the sfence of seal
  14:	mov    %r10d,0x14(%rdx,%rax,1)
  19:	or     %rbx,%rcx
  1c:	mov    %rcx,0x8(%rdx,%rax,1)
  21:	nop				# behind the word of seal
  26:	mov    $0xffffffffffffffff,%rcx
  2d:	lock xadd %rcx,(%rdx,%rax,1)
  33:	je     48 <<scope_ring::writer::LaneWriter>::seal+0x48>
  35:	mov    %rax,0x10(%rdi)
  39:	ret
  48:	call   *0x0(%rip)        # 4e <<scope_ring::writer::LaneWriter>::seal+0x4e>
			4a: R_X86_64_GOTPCREL	core::panicking::panic_fmt-0x4
END
}

# The same commit, its last step a function of its own, which is called.
called_sample() {
    sample | sed '/text.commit/,/text.publish/{
        s/^  20:.*/  20:\tcall   25\n\t\t\t21: R_X86_64_PLT32\tscope_ring::protocol::commit-0x4\n  25:\tjmp    49/
        /^  25:\tmov  *%r9/,/^  44:/d
    }'
    cat <<'END'

Disassembly of section .text.protocol:

0000000000000000 <scope_ring::protocol::commit>:
   0:	or     %rcx,%rdx
   3:	mov    %rdx,0x8(%rdi)
   7:	nop				# behind the word
   b:	ret
END
}

# expect right|PATTERN CASE: the disassembly at standard input passes, or is refused with such a complaint and no other.
expect() {
    said=$(judge)
    failed=$?
    complaints=$(echo "$said" | grep -v -e ': an sfence leads' -e '^[0-9]* non-temporal stores$')
    if [ "$1" = right ]; then
        [ "$failed" -eq 0 ] && [ -z "$complaints" ]
    else
        [ "$failed" -eq 1 ] && echo "$complaints" | grep -q -e "$1" && ! echo "$complaints" | grep -q -v -e "$1"
    fi && { echo "ok: $2"; return; }
    printf 'FAILED: %s: expected %s, found:\n%s\n' "$2" "$1" "$said"
}

# doctor MARK INSTRUCTION: the sample with the marked instruction replaced, by nothing that counts where none is given.
doctor() { sample | sed "s|^\( *[0-9a-f]*:\).*# $1\$|\1 ${2:-nop}|"; }

self_test() {
    sample | expect right 'an sfence out of line that jumps back'
    called_sample | expect right 'the last step as a function of its own'
    doctor 'the choice of commit' 'jmp *%rax' | expect right 'a jump through a register'
    doctor 'of commit' | expect '^commit: no sfence leads' 'no sfence in commit'
    doctor 'of seal' | expect '^seal: no sfence leads' 'no sfence in seal'
    doctor 'behind the sfence of commit' 'movnti %rax,(%rbx)' | expect '^commit: a non-temporal' 'streamed after the sfence'
    doctor 'behind the sfence of commit' 'jne 60' | expect '^commit: a non-temporal' 'streamed by a way back'
    doctor 'behind the sfence of seal' 'vmovntps %zmm0,(%rbx)' | expect '^seal: a non-temporal' 'streamed after the sfence of seal'
    sample | sed 's/scope_packet::pcapng::statistics/scope_ring::stream::entries::Entries::publish/
        s/^   7:.*/   7: nop/; s/^   f:.*/   f: call *%rbx/' |
        expect '^seal: a non-temporal' 'streamed by a call through a register'
    doctor 'behind the sfence of commit' 'jmp *%rax' | expect '^commit: a non-temporal' 'streamed by a jump through a register'
    doctor 'behind the word of commit' 'mov %r9,0x10(%r8,%r10,1)' | expect '^commit: a store after' 'a counter after the word'
    doctor 'behind the word of commit' 'jmp 20' | expect '^commit: a store after' 'the counters after the word'
    doctor 'behind the word of commit' 'movntdq %xmm0,(%rdi)' | expect '^commit: a store after' 'streamed after the word'
    doctor 'behind the word of commit' 'lock incl 0x40(%r14)' | expect '^commit: a locked store' 'a locked counter after the word'
    doctor 'behind the word of seal' 'mov %rdi,0x50(%rdx,%rax,1)' | expect '^seal: a store after' 'a time after the word'
    doctor 'behind the word of seal' 'lock incl 0x44(%rsi)' | expect '^seal: a locked store' 'a locked store before the give-back'
    doctor 'behind the word of seal' 'ret' | expect '^seal: a path does not give' 'a pin that is kept'
    called_sample | sed 's|nop.*# behind the word$|movb $0x1,0x20(%rsi)|' |
        expect '^commit: a store after' 'a store after the word in a called function'
    sample | sed 's/^  44:.*/  44: call 49\n\t\t\t45: R_X86_64_PLT32\tmemcpy-0x4/' |
        expect '^commit: a store after' 'a copy after the word'
    doctor 'the word of commit' | expect '^commit: no store of the committed word' 'no word'
    sample | sed 's/LaneWriter>::seal/LaneWriter>::close/' | expect '^seal: no store of the committed word' 'no seal'
    sample | sed 's/movntdq/movdqa/' | expect '^no non-temporal stores' 'nothing is streamed'
    : | expect '^commit: no store\|^seal: no store\|^no non-temporal stores' 'nothing to read'
}

if [ "${1:-}" = --self-test ]; then
    found=$(self_test)
    echo "$found"
    case $found in *FAILED:*) exit 1 ;; *) exit 0 ;; esac
fi

library=${1:-}
if [ "$(uname -m)" != x86_64 ]; then
    echo 'skipped: the check reads x86-64 only'
    exit 0
fi
command -v objdump >/dev/null 2>&1 || { echo 'no objdump: install binutils' >&2; exit 2; }
if [ -z "$library" ]; then
    cargo build --release --locked -p scope-ring >&2 || exit 2
    library=${CARGO_TARGET_DIR:-target}/release/libscope_ring.rlib
fi
[ -f "$library" ] || { echo "no $library: build scope-ring first" >&2; exit 2; }
objdump -d -r --no-show-raw-insn -C "$library" 2>/dev/null | judge
