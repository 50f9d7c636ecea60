// Package spawn starts processes for engines: in new namespaces with mapped
// ids, or under another user id, with nothing inherited that is not listed.
//
// It must never start anything with a descriptor that the caller did not name,
// nor with the daemon's environment. Proven by TestStart_InheritsOnlyWhatIsListed
// and TestStart_MapsIDs.
package spawn
