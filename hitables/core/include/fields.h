#ifndef HITABLES_FIELDS_H
#define HITABLES_FIELDS_H

/* The header fields of a packet.  Numbers and order are those of hitables.ir.fields.Field; a test compares
 * them. */
enum header_field {
    FIELD_SRC,
    FIELD_DST,
    FIELD_PROTO,
    FIELD_FRAG,
    FIELD_SPORT,
    FIELD_DPORT,
    FIELD_ICMP,
    FIELD_FLAGS,
    FIELD_IIF,
    FIELD_OIF,
    FIELD_MAC,
    FIELD_STATE,
    FIELD_PHYSIN,
    FIELD_PHYSOUT,
    FIELDS /* their number */
};

/* Values of FIELD_FRAG. */
enum header_fragment { FRAGMENT_WHOLE, FRAGMENT_FIRST, FRAGMENT_LATER };

#endif
