// The core library of P4_16, declared as the language specification (appendix "P4 core library") has it.

#ifndef _CORE_P4_
#define _CORE_P4_

error {
    NoError,               // all is well
    PacketTooShort,        // fewer bits are left than extract or lookahead needs
    NoMatch,               // no case of a select fits
    StackOutOfBounds,      // next of a full stack, last of an empty one
    HeaderTooShort,        // more bits than the varbit field can hold
    ParserTimeout,         // the parser ran longer than the target allows
    ParserInvalidArgument  // an argument that the target can't work with
}

extern packet_in {
    // A header from the next bits of the packet.
    void extract<T>(out T hdr);
    // The same; the header's one varbit field gets so many bits.
    void extract<T>(out T variableSizeHeader, in bit<32> variableFieldSizeInBits);
    // The next bits, without going on.
    T lookahead<T>();
    // Goes on by so many bits.
    void advance(in bit<32> sizeInBits);
    // The length of the packet in bytes; not every architecture has it.
    bit<32> length();
}

extern packet_out {
    // Appends a header if it is valid; of a stack, union or struct, all its headers in order.
    void emit<T>(in T hdr);
}

// Stops the parser with an error unless `check` holds.
extern void verify(in bool check, in error toSignal);

// Does nothing. The default action of tables that name none.
@noWarn("unused") action NoAction() {}  // p4c shows the annotation in P4Info

match_kind {
    exact,
    ternary,
    lpm
}

// Checked when the program is loaded.
extern bool static_assert(bool check, string message);
extern bool static_assert(bool check);

#endif
