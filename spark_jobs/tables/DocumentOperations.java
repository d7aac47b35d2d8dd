/**
 * The operations of a table that is known only by its metadata document. Iceberg has no public, writable ones.
 */
public class DocumentOperations extends org.apache.iceberg.StaticTableOperations {
  private final String folder;

  public DocumentOperations(
      org.apache.iceberg.TableMetadata metadata, org.apache.iceberg.io.FileIO io, String folder) {
    super(metadata, io,
        org.apache.iceberg.LocationProviders.locationsFor(metadata.location(), metadata.properties()));
    this.folder = folder;
  }

  public String metadataFileLocation(String name) {
    // The document has the names of all manifest lists. The id of a snapshot is random: no uuid is needed.
    boolean isList = name.startsWith("snap-");
    return folder + "/" + (isList ? name.substring(0, name.indexOf('-', 5)) + ".avro" : name);
  }
}
