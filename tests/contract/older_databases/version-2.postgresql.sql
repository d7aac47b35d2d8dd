CREATE TABLE dropped (
	warehouse TEXT COLLATE "C" NOT NULL, 
	id TEXT COLLATE "C" NOT NULL, 
	kind TEXT COLLATE "C" NOT NULL, 
	namespace TEXT COLLATE "C" NOT NULL, 
	name TEXT COLLATE "C" NOT NULL, 
	uuid TEXT COLLATE "C" NOT NULL, 
	metadata_location TEXT COLLATE "C" NOT NULL, 
	document BYTEA NOT NULL, 
	dropped_ms BIGINT NOT NULL, 
	expires_ms BIGINT NOT NULL, 
	principal TEXT COLLATE "C" NOT NULL, 
	PRIMARY KEY (warehouse, id)
);
CREATE INDEX dropped_by_uuid ON dropped (warehouse, uuid);
CREATE INDEX dropped_to_purge ON dropped (expires_ms) WHERE expires_ms <= 0;
INSERT INTO dropped ("warehouse", "id", "kind", "namespace", "name", "uuid", "metadata_location", "document", "dropped_ms", "expires_ms", "principal") VALUES ('main', '4787c6dd-bc18-447e-b43b-282c8e8789bc', 'table', 'shop', 'gone', '45485c1e-f589-4db9-b942-412249a36b15', 's3://lake-e54daaeb72eb/warehouse/shop/gone-6524f7c072f84c9d91c568fa0cc5347e/metadata/00000-e8c4984b-0525-45c7-9eb0-fcec2ab4a2b2.metadata.json', '\x28b52ffd601202e50d00b65e5822508756078083634d84604b8f5b452f44f888cccc146b40354233c45e0b1262667a0f510050004b0007b5303208506c306179c6c64a2d20309b209855754b59b503ea1008ccc06f6dd179ba823007832e2b4990a592b5306a61dc524b4269d4224d492c659dddbd39d53a8cf653c20ee363b904aaf591b1f923cd675fc8a0ff50b0f353419f6d34560d57cad9dc53f0994e6c0964292b410ecb5a10083b3fca6dab8366815d2ef34ca8b6c19d8e65d5acced317b10c4a6b056d1207a5218b5bda4a3409a2d010cd4a94ecbcafe5425142729d8caa655c9685ddbd45b480f1f56ba9d0535b88553b539b754f8b68112d3bda3cd99ca468a76c76b7f24dc7caa7336074d2dd3bfb3e0a9f1076f79cb3af797ab72903d142c1ce888ed256a7bd0f233aaabde6d7dafcb450b0f353f460e766e513a23a361852187d3b4e0780027040bfb36f47f874d77c70f6b62e3605e3635e093db109f44e87544860fbc9823f022420308249d90dcf202e014d046b3630e6c52545d96b0caa0c03910d7ce27340618331e47418b3b70144797a1730c8c14403b85e3676d4009509a3eb8429e870e1725b4613276177e070dcf414f7761ab861f25c3884c0ce', 1794961245828, 1795566045828, 'admin');
CREATE TABLE entries (
	warehouse TEXT COLLATE "C" NOT NULL, 
	namespace TEXT COLLATE "C" NOT NULL, 
	name TEXT COLLATE "C" NOT NULL, 
	kind TEXT COLLATE "C" NOT NULL, 
	uuid TEXT COLLATE "C" NOT NULL, 
	version BIGINT NOT NULL, 
	metadata_location TEXT COLLATE "C", 
	document BYTEA NOT NULL, 
	protected INTEGER DEFAULT '0' NOT NULL, 
	PRIMARY KEY (warehouse, namespace, name)
);
CREATE INDEX entries_by_kind ON entries (warehouse, namespace, kind, name);
CREATE INDEX entries_by_uuid ON entries (warehouse, uuid);
INSERT INTO entries ("warehouse", "namespace", "name", "kind", "uuid", "version", "metadata_location", "document", "protected") VALUES ('main', 'shop', '', 'namespace', '766d8ba6-8620-431d-8643-680e3ea6701f', 1, NULL, '\x28b52ffd200f7900007b226f776e6572223a226f7073227d', 0);
INSERT INTO entries ("warehouse", "namespace", "name", "kind", "uuid", "version", "metadata_location", "document", "protected") VALUES ('main', 'shopGröße', '', 'namespace', 'aac51b61-d3d5-4968-8bdf-8ea227ceba38', 2, NULL, '\x28b52ffd20021100007b7d', 0);
INSERT INTO entries ("warehouse", "namespace", "name", "kind", "uuid", "version", "metadata_location", "document", "protected") VALUES ('main', 'shop', 'recent', 'view', 'f3417fda-c31f-4a84-9ed8-6c0a765d5912', 8, 's3://lake-e54daaeb72eb/warehouse/shop/recent-73e0edd360e949b38cfee3e4ef62bcff/metadata/00000-4dd93346-c393-4dd8-9041-5fd6f57c3a44.metadata.json', '\x28b52ffd6062018d0b00e6584a22404bac033b8fb6e4ccc0830dc6b45d3d045874acbcf681100ff4f1e512c26518630242003f0040008a238ce2bb4e417c1d61a361b084ba6e83a2d5c1fc4090ce2bacba7242cfcac8d1201c6261f6d09695706f96925865bd23696bdd630e257966765092d6c2a1821b0266bedcc741170f9f956b9366a5667ec450dd60c04c577ed1a895df6b0a6479579efcaf251245a3343f2c89733f3c61567dde3e8d085a50e35482169fbb600456530333c35c29256a95481884821c4ba334ccc14ce58ae4567a09abd5f17c4ea95939d381d9c1e54ca7711f9c95226aba342bb3fb8452c2a7950f1e282a3b18d3d4c04c0feb7c04cdc8ca990ea0b89cc971042da80d98df36a297fbac1aa57d7756ce6484b91135736d8f0b9d950f8082008101010233e598509fd3cfe8331a005c23002a013063808c419c670aa62ed58c80170388db6b3c06893fdfc238133d1c64e6f0348082f4aa3cc268d509ab82ae2e80725b355a54f20c7351f639a7816b4601', 0);
INSERT INTO entries ("warehouse", "namespace", "name", "kind", "uuid", "version", "metadata_location", "document", "protected") VALUES ('main', 'shop', 'orders', 'table', '9e2f73b0-407c-4dff-84ba-baa6c49fee53', 5, 's3://lake-e54daaeb72eb/warehouse/shop/orders-c753a0b02feb48c0b67d3cf5fcb3fe81/metadata/00002-0bfaf7eb-7760-47fd-9fe1-6d5945878668.metadata.json', '\x28b52ffd60c206351600166c7b1f5049f4184a19d2eabb80f46628d20482c8cca4b6c0bb6fef04d7119299d9617300710071000ae3d0e490ba63e037fded85112fc465a140e9242ce261280a224d71c994a2ba70074cd77ab4f5d0d4c43df8756ac26d231c146787e2ddb1394f5ed0cbe1901497bf615d1871e1dce56bd0e856522b0d4952c696e0a15a524a7148e68f138ed371922f4a3f239630adf35a3f48df8cad921702d536e96d7def251c27e241d03a7fbeed8611f4e6a65f9c961e19211ec4e3776939ed5f861e77ec271cdd4ec7c02d231ea075411c2727ec4c53462be138e3e25332e2878efdcb097b93f0bc2090f065a49af104bce9a95bebc03813659ca5427518aeb165bcf68e95f06552f4efd838d603f7d0dfb1df99c3dfb9a4bf2e276d869173ae61faaf33f3192d46ee218f35c33810d79c73cf60c5f330e204a46d9584e96c46ba65c49e7a857b4c39e60ed7d6735f13b769fab07f750c001ae006fc57ca88e35f054e187aac30d13aef75db30151ade1d03db8dc17f5a045e48f8fa7ceb4d0fc228a0a196f3e2b5b41ca2a4e5604bcb8b2249e9186c0b498b69bd0406033c96e207934ab295d651280939624b487b32194753f1c59694524af9322572304688073d03754108247ce1fc3bbf9fa18717277ca3add06d8a1e6333e248bd69da7a537921e104db0ce35c465ced411b52d33450a8d18d414830134c20322232da24393082e494d90d12e813198d629841460a1032134d4401451496973b2507c434a400dc9754009a554ee8fe99de58b792e69c1e63460221c300822a6070dcd4e60f4149991b6be3f203bcffee0211c25b24c8830c8428dac9899a167fde0f4196f28d22099a44c47f6db4af016f1d12e411797b2e626b69b89b97c07c2962ef7e474bbba4a40f54ae6bd39e416b20fd0614e3d80e9314ba2f765120607a4fc6ade9067052da46fb55ec58dbf0ea18fbfa6d93a21877c6446fa7430b750d9fad5cae4e750885a802', 1);
INSERT INTO entries ("warehouse", "namespace", "name", "kind", "uuid", "version", "metadata_location", "document", "protected") VALUES ('main', 'shop', 'customers', 'table', 'ec9b25c6-9a58-441b-b41e-ccd245706d37', 5, 's3://lake-e54daaeb72eb/warehouse/shop/customers-c339b7098ae6438790381e0e0cdf48d6/metadata/00001-30e1aa38-8ee6-4f92-a003-c69a38616f25.metadata.json', '\x28b52ffd6086040d1300a62872205069f400d5984c2ebadbaa3258b37b88465535208d6dff4b8b78e1d3a8aa06186b0066006900cea655e00169e05bbd9a1d8eb5b4c38128cd87653566398ea79cf633dfeb334033e186f63a134df9c0c0b4d198668648d2aa0bd83118dce1fbfca6b369db0195d512c480efa96608a3188620ea90f0a2949718ccf27addc258ab6a87e1df64b895333a6d03f5fcd0d9ec220db97aa772d37013224244ed0e3791be1b29ea4adf2d6c1aaba2e9a61d90d3490be3baed87258cd0e9d86cda7f95beafdb86107e17026e7dd3e2a713cfd5cba6b43e18957caa331fb214053198b2204b636efd51b09f2154995bdacc53a5ea27bb2adad53b078935047af8bd9ff851b469134f3265dccac84fd37453a2188d25078331a41d8e833103f999708865b4fdb32a0018c003fea7dcb4f03d61ddbe86f32939a37b53e899aff05d1594a1427fa407bb70eb1d9f363429441bd2a99ece6559dcc288881072c68f4f19daf40211225a399da05050da325ae35e0753d4331a46358c11b58e64510d2e87b5e0536badb5da894d6b47b209110d4c0721e0d65f7c8fcfefd1b275eb90ced754c18690372d940d414c1b9abb708b40f979aa6fda490db8a020966ee067c8df8fe13d3aeabd9b28f9d93a2020824559d901c34c14e573e678832a61d0fea53e2bc42bc44e0b2aa8e06bf03ca180760728caa17014efde0ed1b020a9c06426ab289d340abdb7ac455fa06370bae102f800570bb5daa02c3654dbd7a65e009203f4c08701f50dc6c9e93466b90144f3f428608883890dc0f5b263471ba09230ba4e9882fe2e28b765b438f2fa2fde3b4674dceca9f0761a756365ba7008019e01', 0);
CREATE TABLE grants (
	principal TEXT COLLATE "C" NOT NULL, 
	warehouse TEXT COLLATE "C" NOT NULL, 
	role TEXT COLLATE "C" NOT NULL, 
	PRIMARY KEY (principal, warehouse)
);
INSERT INTO grants ("principal", "warehouse", "role") VALUES ('admin', '*', 'admin');
CREATE TABLE heads (
	warehouse TEXT COLLATE "C" NOT NULL, 
	number BIGINT NOT NULL, 
	time_ms BIGINT NOT NULL, 
	PRIMARY KEY (warehouse)
);
INSERT INTO heads ("warehouse", "number", "time_ms") VALUES ('second', 0, 1794961244866);
INSERT INTO heads ("warehouse", "number", "time_ms") VALUES ('main', 10, 1794961246645);
CREATE TABLE history (
	warehouse TEXT COLLATE "C" NOT NULL, 
	number BIGINT NOT NULL, 
	ordinal INTEGER NOT NULL, 
	time_ms BIGINT NOT NULL, 
	operation TEXT COLLATE "C" NOT NULL, 
	kind TEXT COLLATE "C" NOT NULL, 
	namespace TEXT COLLATE "C" NOT NULL, 
	name TEXT COLLATE "C" NOT NULL, 
	present INTEGER NOT NULL, 
	uuid TEXT COLLATE "C" NOT NULL, 
	version BIGINT NOT NULL, 
	metadata_location TEXT COLLATE "C", 
	principal TEXT COLLATE "C" NOT NULL, 
	detail TEXT COLLATE "C" NOT NULL, 
	PRIMARY KEY (warehouse, number, ordinal)
);
CREATE INDEX history_by_name ON history (warehouse, namespace, name, number);
CREATE INDEX history_by_time ON history (warehouse, time_ms);
INSERT INTO history ("warehouse", "number", "ordinal", "time_ms", "operation", "kind", "namespace", "name", "present", "uuid", "version", "metadata_location", "principal", "detail") VALUES ('main', 1, 0, 1794961245002, 'create-namespace', 'namespace', 'shop', '', 1, '766d8ba6-8620-431d-8643-680e3ea6701f', 1, NULL, 'admin', '{"properties":{"owner":"ops"}}');
INSERT INTO history ("warehouse", "number", "ordinal", "time_ms", "operation", "kind", "namespace", "name", "present", "uuid", "version", "metadata_location", "principal", "detail") VALUES ('main', 2, 0, 1794961245183, 'create-namespace', 'namespace', 'shopGröße', '', 1, 'aac51b61-d3d5-4968-8bdf-8ea227ceba38', 2, NULL, 'admin', '{"properties":{}}');
INSERT INTO history ("warehouse", "number", "ordinal", "time_ms", "operation", "kind", "namespace", "name", "present", "uuid", "version", "metadata_location", "principal", "detail") VALUES ('main', 3, 0, 1794961245304, 'create-table', 'table', 'shop', 'orders', 1, '9e2f73b0-407c-4dff-84ba-baa6c49fee53', 3, 's3://lake-e54daaeb72eb/warehouse/shop/orders-c753a0b02feb48c0b67d3cf5fcb3fe81/metadata/00000-4d9d0476-f948-4d78-b371-12f0f27eb17c.metadata.json', 'admin', '{"current-snapshot-id":-1,"current-schema-id":0,"default-spec-id":0,"default-sort-order-id":0,"last-updated-ms":1794961245278}');
INSERT INTO history ("warehouse", "number", "ordinal", "time_ms", "operation", "kind", "namespace", "name", "present", "uuid", "version", "metadata_location", "principal", "detail") VALUES ('main', 4, 0, 1794961245394, 'create-table', 'table', 'shop', 'customers', 1, 'ec9b25c6-9a58-441b-b41e-ccd245706d37', 4, 's3://lake-e54daaeb72eb/warehouse/shop/customers-c339b7098ae6438790381e0e0cdf48d6/metadata/00000-cd0089d7-9530-4a1f-bf2c-6130ea772076.metadata.json', 'admin', '{"current-snapshot-id":-1,"current-schema-id":0,"default-spec-id":0,"default-sort-order-id":0,"last-updated-ms":1794961245377}');
INSERT INTO history ("warehouse", "number", "ordinal", "time_ms", "operation", "kind", "namespace", "name", "present", "uuid", "version", "metadata_location", "principal", "detail") VALUES ('main', 5, 0, 1794961245429, 'create-table', 'table', 'shop', 'gone', 1, '45485c1e-f589-4db9-b942-412249a36b15', 5, 's3://lake-e54daaeb72eb/warehouse/shop/gone-6524f7c072f84c9d91c568fa0cc5347e/metadata/00000-e8c4984b-0525-45c7-9eb0-fcec2ab4a2b2.metadata.json', 'admin', '{"current-snapshot-id":-1,"current-schema-id":0,"default-spec-id":0,"default-sort-order-id":0,"last-updated-ms":1794961245418}');
INSERT INTO history ("warehouse", "number", "ordinal", "time_ms", "operation", "kind", "namespace", "name", "present", "uuid", "version", "metadata_location", "principal", "detail") VALUES ('main', 6, 0, 1794961245594, 'update-table', 'table', 'shop', 'orders', 1, '9e2f73b0-407c-4dff-84ba-baa6c49fee53', 4, 's3://lake-e54daaeb72eb/warehouse/shop/orders-c753a0b02feb48c0b67d3cf5fcb3fe81/metadata/00001-814c25ff-33e1-4c51-b851-493e5106c36c.metadata.json', 'admin', '{"current-snapshot-id":3269555458766429895,"current-schema-id":0,"default-spec-id":0,"default-sort-order-id":0,"last-updated-ms":1794961245555,"updates":["add-snapshot","set-snapshot-ref"],"added-snapshots":[3269555458766429895]}');
INSERT INTO history ("warehouse", "number", "ordinal", "time_ms", "operation", "kind", "namespace", "name", "present", "uuid", "version", "metadata_location", "principal", "detail") VALUES ('main', 7, 0, 1794961245697, 'update-table', 'table', 'shop', 'orders', 1, '9e2f73b0-407c-4dff-84ba-baa6c49fee53', 5, 's3://lake-e54daaeb72eb/warehouse/shop/orders-c753a0b02feb48c0b67d3cf5fcb3fe81/metadata/00002-0bfaf7eb-7760-47fd-9fe1-6d5945878668.metadata.json', 'admin', '{"current-snapshot-id":591457525029539092,"current-schema-id":0,"default-spec-id":0,"default-sort-order-id":0,"last-updated-ms":1794961245670,"updates":["add-snapshot","set-snapshot-ref"],"added-snapshots":[591457525029539092]}');
INSERT INTO history ("warehouse", "number", "ordinal", "time_ms", "operation", "kind", "namespace", "name", "present", "uuid", "version", "metadata_location", "principal", "detail") VALUES ('main', 8, 0, 1794961245766, 'create-view', 'view', 'shop', 'recent', 1, 'f3417fda-c31f-4a84-9ed8-6c0a765d5912', 8, 's3://lake-e54daaeb72eb/warehouse/shop/recent-73e0edd360e949b38cfee3e4ef62bcff/metadata/00000-4dd93346-c393-4dd8-9041-5fd6f57c3a44.metadata.json', 'admin', '{}');
INSERT INTO history ("warehouse", "number", "ordinal", "time_ms", "operation", "kind", "namespace", "name", "present", "uuid", "version", "metadata_location", "principal", "detail") VALUES ('main', 9, 0, 1794961245843, 'drop-table', 'table', 'shop', 'gone', 0, '45485c1e-f589-4db9-b942-412249a36b15', 5, 's3://lake-e54daaeb72eb/warehouse/shop/gone-6524f7c072f84c9d91c568fa0cc5347e/metadata/00000-e8c4984b-0525-45c7-9eb0-fcec2ab4a2b2.metadata.json', 'admin', '{"purge":false}');
INSERT INTO history ("warehouse", "number", "ordinal", "time_ms", "operation", "kind", "namespace", "name", "present", "uuid", "version", "metadata_location", "principal", "detail") VALUES ('main', 10, 0, 1794961246645, 'update-table', 'table', 'shop', 'customers', 1, 'ec9b25c6-9a58-441b-b41e-ccd245706d37', 5, 's3://lake-e54daaeb72eb/warehouse/shop/customers-c339b7098ae6438790381e0e0cdf48d6/metadata/00001-30e1aa38-8ee6-4f92-a003-c69a38616f25.metadata.json', 'admin', '{"updates":["add-snapshot","set-snapshot-ref"],"added-snapshots":[4211338741128517265],"current-snapshot-id":4211338741128517265,"current-schema-id":0,"default-spec-id":0,"default-sort-order-id":0,"last-updated-ms":1794961246604}');
CREATE TABLE idempotency (
	principal TEXT COLLATE "C" NOT NULL, 
	operation TEXT COLLATE "C" NOT NULL, 
	target TEXT COLLATE "C" NOT NULL, 
	key TEXT COLLATE "C" NOT NULL, 
	body_hash TEXT COLLATE "C" NOT NULL, 
	status INTEGER NOT NULL, 
	answer TEXT COLLATE "C" NOT NULL, 
	expires_ms BIGINT NOT NULL, 
	PRIMARY KEY (principal, operation, target, key)
);
CREATE INDEX idempotency_by_expiry ON idempotency (expires_ms);
INSERT INTO idempotency ("principal", "operation", "target", "key", "body_hash", "status", "answer", "expires_ms") VALUES ('admin', 'createNamespace', 'main:72e0224eca9c0d0340df3880d0d353b3', '01a1ec07-039a-7000-8c3c-2d52bd5a4d82', '0f2feb62de0f1a5782e31b166706d35928cf404184b90eae9af2abc3515afd30', 200, '{"location":"s3://lake-e54daaeb72eb/warehouse/shop/Gr_e"}', 1794963045141);
CREATE TABLE locations (
	warehouse TEXT COLLATE "C" NOT NULL, 
	location TEXT COLLATE "C" NOT NULL, 
	uuid TEXT COLLATE "C" NOT NULL, 
	PRIMARY KEY (warehouse, location)
);
CREATE INDEX locations_by_uuid ON locations (warehouse, uuid);
INSERT INTO locations ("warehouse", "location", "uuid") VALUES ('main', 's3://lake-e54daaeb72eb/warehouse/shop/orders-c753a0b02feb48c0b67d3cf5fcb3fe81', '9e2f73b0-407c-4dff-84ba-baa6c49fee53');
INSERT INTO locations ("warehouse", "location", "uuid") VALUES ('main', 's3://lake-e54daaeb72eb/warehouse/shop/customers-c339b7098ae6438790381e0e0cdf48d6', 'ec9b25c6-9a58-441b-b41e-ccd245706d37');
INSERT INTO locations ("warehouse", "location", "uuid") VALUES ('main', 's3://lake-e54daaeb72eb/warehouse/shop/recent-73e0edd360e949b38cfee3e4ef62bcff', 'f3417fda-c31f-4a84-9ed8-6c0a765d5912');
CREATE TABLE principals (
	principal TEXT COLLATE "C" NOT NULL, 
	secret_hash TEXT COLLATE "C" NOT NULL, 
	created_ms BIGINT NOT NULL, 
	disabled INTEGER DEFAULT '0' NOT NULL, 
	PRIMARY KEY (principal)
);
INSERT INTO principals ("principal", "secret_hash", "created_ms", "disabled") VALUES ('admin', 'scrypt$8192$8$1$kre3qbloIspSn6GYit/k1g==$oDUHjhPmrx9dTtyGne95UvaHis3f+e54+S1agFxBTpE=', 1794961243048, 0);
CREATE TABLE reports (
	id BIGSERIAL NOT NULL, 
	warehouse TEXT COLLATE "C" NOT NULL, 
	namespace TEXT COLLATE "C" NOT NULL, 
	name TEXT COLLATE "C" NOT NULL, 
	uuid TEXT COLLATE "C" NOT NULL, 
	received_ms BIGINT NOT NULL, 
	principal TEXT COLLATE "C" NOT NULL, 
	report TEXT COLLATE "C" NOT NULL, 
	PRIMARY KEY (id)
);
CREATE INDEX reports_by_table ON reports (warehouse, namespace, name, id);
CREATE INDEX reports_by_time ON reports (received_ms);
INSERT INTO reports ("id", "warehouse", "namespace", "name", "uuid", "received_ms", "principal", "report") VALUES (1, 'main', 'shop', 'orders', '9e2f73b0-407c-4dff-84ba-baa6c49fee53', 1794961246158, 'admin', '{"report-type":"scan-report"}');
CREATE TABLE schema_version (
	version SERIAL NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO schema_version ("version") VALUES (2);
CREATE TABLE staged (
	transaction_id TEXT COLLATE "C" NOT NULL, 
	namespace TEXT COLLATE "C" NOT NULL, 
	name TEXT COLLATE "C" NOT NULL, 
	kind TEXT COLLATE "C" NOT NULL, 
	operation TEXT COLLATE "C" NOT NULL, 
	present INTEGER NOT NULL, 
	uuid TEXT COLLATE "C" NOT NULL, 
	version BIGINT NOT NULL, 
	metadata_location TEXT COLLATE "C", 
	document BYTEA NOT NULL, 
	base_uuid TEXT COLLATE "C", 
	base_version BIGINT, 
	base_location TEXT COLLATE "C", 
	requests BYTEA NOT NULL, 
	detail TEXT COLLATE "C" NOT NULL, 
	PRIMARY KEY (transaction_id, namespace, name)
);
INSERT INTO staged ("transaction_id", "namespace", "name", "kind", "operation", "present", "uuid", "version", "metadata_location", "document", "base_uuid", "base_version", "base_location", "requests", "detail") VALUES ('4c4c917c-527e-440e-bb3f-031036e40af3', 'shop', 'customers', 'table', 'update-table', 1, 'ec9b25c6-9a58-441b-b41e-ccd245706d37', 6, 's3://lake-e54daaeb72eb/warehouse/shop/customers-c339b7098ae6438790381e0e0cdf48d6/metadata/00002-e80e6b12-0043-4061-93a3-08c1952021d0.metadata.json', '\x28b52ffd60d60675160026ed7d1f5049f4184a19d2eabb80f4c640da0e42c4cc4cb15fa06d6b09ae232433b3c37500730074009e300e4d1ea93b067ed3df5e18b1210fa7c8a85cf93a9a82ef68cef03ea07a096c2da66b9da97f9d78686ae21efc3a35e1b6110e89b39778b77485272fe8e57040dae5ef581746fc9a34d42b1c9331265f2e49c9722e1d45c364c48225303a232ca7e3245f927e460c615ae7b57e90be195b155e084db58d75696b7a5b218408cb897810b4ce9f6fbb6114bdb9e917a715978c100fe2f1bbb432ed5f861e77ec232cdd4ec7c02d231ea075412c2723ec4c53460b6139e5e25361c41f1dfb9711f626e1794100e1cb4835e38978d353b7d6897226ca384b8df0198e2d033af816c29749d2bf65e3d8a9697a0ffd2dfb9d39fc9d4bfaebcaa4cd305acf354cff75663ea3c5a830d85bc5c1d672ef686d2de69e871127226d9b204c67338a5b460c16b0bde78ae2add78cc5d8fa9ab84dd387fdab6300d00037e0bf52462cff2a30c2d1658d89d679afdb86a9d1f0ee18d86e0cfed322f002c2d7e75b0f0fa2608ab18ca33534626a4a75625071c9703fd2d1ba97ab9616d37a090c06e329f65ebb6acb489129495256bba45a01d393f0504ac6a49452ca97a9bcd70a4688073d4e1903754108207ce3fc3bbf9fc1c716d0c38b11bed2d6e8364997b219b1a4de346dbda9bc8070826d86712e23aef6a00d0150a8c18d514830134c20322232da24394082c4949d071208f40c90621c42c6192438c10414513091f2331e061cc748e9b5b4960ca419e68a14e1fc460d2c17f32c9681e7a31c45841064d68bc2ea6cb92a6d782a3a557d22afa767b80cae325a46ac99393382bb6ce706ce864c2628b9d00c9a8223eedfdef7b87a1b98acf38a70cf46e3dd55a4687b39f255713960d1a8cba47407eaeadac467701b90ff54d46a47a6eb385ad787c8d503332493878048391bc1b102c45a8291aef0576a95149171ef4f4c6006b49863884c36eaaad52182b40a', 'ec9b25c6-9a58-441b-b41e-ccd245706d37', 5, 's3://lake-e54daaeb72eb/warehouse/shop/customers-c339b7098ae6438790381e0e0cdf48d6/metadata/00001-30e1aa38-8ee6-4f92-a003-c69a38616f25.metadata.json', '\x28b52ffd607501650b00765a4c1d6047f4414b87989c2da5d63ad2b68f2208f29246b8aa3c52661000c0b94300440044006ba5a4d85bb49369b96f15a75c9be59d9ecf8a5374d8b6e2513483a908217b6209278931468c767c4043250efabe451b99e7612f245db952ffef7deb4e415dc3603008ae1d4ca5c331d7d2db97ecc8aeef92a98bd45bea897c263b9cfe08f82f52ce70ab3566182db57524a5d2dbc8b0e16d8cbd6f67c354d86b1820c2c138544b06a252620d091dbbba248e883025c2c20b4fc82a5c43163bbc1157b4c4ad05f9a9cba6fe0309a7599ef07f9ac569131089ab9678776486b307748120defa7d5b9f29707d5798d972910a0402e1b0c0d93471d99315a75cfdd1a14ea7ed2c2ade46865bfa027fd161d3befd481be894a3c7d88b364e779ca6ee346b785b405bcae7176d43071a809d9e4f740d1400584b30e382cc3545bf191cefd6c26b1028636e0da45b34740488202a100922860ef7127a150fc25847a1787cf89bb0fd713016e82a64', '{"current-snapshot-id":1221637175547739592,"current-schema-id":0,"default-spec-id":0,"default-sort-order-id":0,"last-updated-ms":1794961246792,"updates":["add-snapshot","set-snapshot-ref"],"added-snapshots":[1221637175547739592]}');
CREATE TABLE tokens (
	token_hash TEXT COLLATE "C" NOT NULL, 
	principal TEXT COLLATE "C" NOT NULL, 
	expires_ms BIGINT NOT NULL, 
	PRIMARY KEY (token_hash)
);
CREATE INDEX tokens_by_expiry ON tokens (expires_ms);
INSERT INTO tokens ("token_hash", "principal", "expires_ms") VALUES ('fc0dfda2b99d17c2de87656b7b2f1ff0ed706ca2c2b00f14172f59b82e38b855', 'admin', 1794964844601);
CREATE TABLE transactions (
	id TEXT COLLATE "C" NOT NULL, 
	warehouse TEXT COLLATE "C" NOT NULL, 
	name TEXT COLLATE "C" NOT NULL, 
	base_number BIGINT NOT NULL, 
	state TEXT COLLATE "C" NOT NULL, 
	opened_ms BIGINT NOT NULL, 
	expires_ms BIGINT NOT NULL, 
	closed_ms BIGINT, 
	number BIGINT, 
	principal TEXT COLLATE "C" NOT NULL, 
	PRIMARY KEY (id)
);
CREATE INDEX transactions_by_name ON transactions (warehouse, name, opened_ms);
CREATE INDEX transactions_by_time ON transactions (warehouse, opened_ms, id);
CREATE UNIQUE INDEX transactions_open ON transactions (warehouse, name) WHERE state = 'open';
INSERT INTO transactions ("id", "warehouse", "name", "base_number", "state", "opened_ms", "expires_ms", "closed_ms", "number", "principal") VALUES ('394de287-5e2f-4059-86f6-e032af5ce0b2', 'main', 'done', 9, 'committed', 1794961246215, 1795561246215, 1794961246604, 10, 'admin');
INSERT INTO transactions ("id", "warehouse", "name", "base_number", "state", "opened_ms", "expires_ms", "closed_ms", "number", "principal") VALUES ('4c4c917c-527e-440e-bb3f-031036e40af3', 'main', 'open', 10, 'open', 1794961246679, 1795561246679, NULL, NULL, 'admin');
CREATE TABLE warehouses (
	warehouse TEXT COLLATE "C" NOT NULL, 
	root TEXT COLLATE "C" NOT NULL, 
	created_ms BIGINT NOT NULL, 
	PRIMARY KEY (warehouse), 
	UNIQUE (root)
);
INSERT INTO warehouses ("warehouse", "root", "created_ms") VALUES ('main', 's3://lake-e54daaeb72eb/warehouse', 1794961235763);
INSERT INTO warehouses ("warehouse", "root", "created_ms") VALUES ('second', 's3://lake-e54daaeb72eb/warehouse-second', 1794961244866);
SELECT setval(pg_get_serial_sequence('reports', 'id'), (SELECT max(id) FROM reports));
