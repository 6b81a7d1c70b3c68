//! Every operation of every instruction set against the scalar definition, bit for bit.
