// Package fdpass carries messages with open descriptors over a Unix socket pair
// (SCM_RIGHTS, unix(7)), and makes such pairs.
//
// It must never leak a descriptor: what arrives beyond what is expected is
// closed, and everything is close-on-exec. Proven by TestConn_CarriesDescriptors.
package fdpass
