package wire_test
